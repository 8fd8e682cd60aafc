"""A writer as a process of its own: commits counters' events at a rate, and now and then rolls back."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter as Tally
from pathlib import Path
from uuid import UUID, uuid5

import asyncpg
from sqlalchemy.exc import SQLAlchemyError

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from outbox_kernel.infrastructure.errors import InfrastructureError
from tests.faults.clock import pause
from tests.faults.domain import Counter
from tests.faults.parent import end_with_parent

NAMESPACE = UUID("a7d1c9a2-51f1-4d3c-9d0e-2f6f7d0c1b11")
SHARE_ROLLED_BACK = 0.05
EVENTS_AT_ONCE_MAX = 3
PAUSE_SECONDS = 0.2
# As an application sets one: of a server that says nothing any more nobody else tells it.
WRITE_SECONDS_MAX = 10.0
# A writer of the kind that the rig starts two of: they meet at the counters, and one of them loses.
TROUBLE = (ConcurrencyError, InfrastructureError, SQLAlchemyError, asyncpg.PostgresError, OSError)

log = logging.getLogger("faults.writer")


class Writer:
    """Commits until it has written what it was asked for."""

    def __init__(self, uow: SqlAlchemyUnitOfWork) -> None:
        self._uow = uow
        self._random = random.Random(f"{os.environ['FAULTS_SEED']}:{os.environ['FAULTS_WRITER']}")
        self._events = int(os.environ["FAULTS_EVENTS"])
        self._rate = float(os.environ["FAULTS_RATE"])
        self._counters = [uuid5(NAMESPACE, str(n)) for n in range(int(os.environ["FAULTS_COUNTERS"]))]
        self._spells = self._places_of_spells()
        self._acknowledged = Path(os.environ["FAULTS_ACKNOWLEDGED"])
        self.written = 0

    def _places_of_spells(self) -> dict[int, str]:
        wanted = Tally({name: int(n) for name, _, n in _pairs(os.environ.get("FAULTS_SPELLS", ""))})
        places = self._random.sample(range(self._events), wanted.total())
        return dict(zip(places, wanted.elements(), strict=True))

    async def write_all(self) -> None:
        """Write at the rate, through every trouble."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while self.written < self._events:
            try:
                async with asyncio.timeout(WRITE_SECONDS_MAX):
                    self.written += await self._write()
            except TROUBLE as error:
                log.warning("%s: %s", type(error).__name__, error)
                await pause(self._random.random() * PAUSE_SECONDS)
            await pause(begun + self.written / self._rate - loop.time())

    async def _write(self) -> int:
        spells = [
            self._spells.get(self.written + n, "") for n in range(self._random.randint(1, EVENTS_AT_ONCE_MAX))
        ]
        async with self._uow as uow:
            counters = uow.repository(Counter)
            identity = self._random.choice(self._counters)
            counter = await counters.get(identity)
            if counter is None:
                counter = Counter(identity)
                counters.add(counter)
            for spell in spells:
                counter.count(spell)
            if self._random.random() < SHARE_ROLLED_BACK:
                await uow.session.flush()
                return 0
            await uow.commit()
        with self._acknowledged.open("a") as file:
            file.write(f"{identity} {counter.n}\n")
        return len(spells)


def _pairs(text: str) -> list[tuple[str, str, str]]:
    return [part.partition("=") for part in text.split(",") if part]


async def main() -> None:
    """Write, then hang up."""
    end_with_parent()
    engine = create_engine(os.environ["DATABASE_URL"])
    try:
        await Writer(SqlAlchemyUnitOfWork(session_factory(engine))).write_all()
    finally:
        await engine.dispose()


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(main())
