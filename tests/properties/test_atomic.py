"""The sessions of an atomic run, in any interleaving: what they committed is there, or nothing at all is (R6)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import attrs
import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st
from sqlalchemy import func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from outbox_kernel.infrastructure.errors import NotOneTransaction
from outbox_kernel.infrastructure.outbox.atomic import OneTransaction
from outbox_kernel.infrastructure.outbox.receipts import HandlerRun, Terms
from outbox_kernel.kernel.context import Delivery, handling
from tests.bank import Bank, engine_of
from tests.domain import Wallet, journal

SESSIONS = 3
WRITES = ("insert", "text", "flush", "emit", "connection", "cte")
ENDS = ("commit", "rollback", "close")
KINDS = (*WRITES, "lock", "read", "count", "nest", "release", "undo", *ENDS)
# What a session may do while others are at work, and harm none of them.
READS = ("read", "count", "nest", "release", "undo", *ENDS)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, SESSIONS - 1)), max_size=25)
RELAY, EPOCH = UUID(int=1), 1
RESET = """
TRUNCATE outbox_events, outbox_arrivals, outbox_receipts, outbox_relays, bank_wallets, bank_entries, bank_journal;
INSERT INTO outbox_relays (id, epoch, expires_at, process_id, host, code_version)
VALUES ('00000000-0000-0000-0000-000000000001', 1, 'infinity', 1, 'here', '1')
"""
STORED = """
SELECT line FROM bank_journal UNION ALL SELECT owner FROM bank_wallets
UNION ALL SELECT payload->>'what' FROM outbox_events WHERE event_type = 'bank.announced' ORDER BY 1
"""
EVENTS = "SELECT payload->>'what' FROM outbox_events WHERE event_type = 'bank.opened' ORDER BY 1"


@attrs.define
class Model:
    """What sessions have written, were each alone in the world: a list per savepoint, and what is committed."""

    open: list[list[list[str]]] = attrs.Factory(lambda: [[[]] for _ in range(SESSIONS)])
    committed: list[str] = attrs.Factory(list)
    begun: list[bool] = attrs.Factory(lambda: [False] * SESSIONS)
    writing: list[bool] = attrs.Factory(lambda: [False] * SESSIONS)
    overlapped: bool = False
    """Whether one that had written, or locked, was open while another one wrote."""

    def note(self, kind: str, which: int, what: str) -> None:
        savepoints = self.open[which]
        self.begun[which] = kind not in ENDS
        self.writing[which] = self.begun[which] and (self.writing[which] or kind not in READS)
        self.overlapped |= kind not in READS and sum(self.writing) > 1
        if kind in WRITES:
            savepoints[-1].append(what)
        elif kind == "nest":
            savepoints.append([])
        elif kind in ("release", "undo"):
            inner = savepoints.pop()
            savepoints[-1] += inner if kind == "release" else []
        elif kind in ENDS:
            self.committed += chain.from_iterable(savepoints) if kind == "commit" else []
            self.open[which] = [[]]


async def take(session: AsyncSession, kind: str, what: str) -> None:
    if kind == "insert":
        await session.execute(insert(journal).values(line=what))
    elif kind == "text":
        await session.execute(text("INSERT INTO bank_journal VALUES (:what)"), {"what": what})
    elif kind == "flush":
        session.add(Wallet.open(what))
        await session.flush()
    elif kind == "emit":
        Bank.emit(session, what)
        await session.flush()
    elif kind == "connection":
        await (await session.connection()).execute(insert(journal).values(line=what))
    elif kind == "cte":
        await session.execute(select(insert(journal).values(line=what).returning(journal.c.line).cte()))
    elif kind == "lock":
        await session.execute(select(journal).with_for_update())
    elif kind == "count":
        await session.execute(select(func.count()).select_from(journal))
    elif kind == "read":
        await session.scalars(select(journal))
    else:
        await end(session, kind)


async def end(session: AsyncSession, kind: str) -> None:
    nested: Any = session.get_nested_transaction()
    steps: dict[str, Any] = {
        "nest": session.begin_nested,
        "release": getattr(nested, "commit", None),
        "undo": getattr(nested, "rollback", None),
    }
    take_step: Any = steps.get(kind) or getattr(session, kind)
    await take_step()


async def run(bank: Bank, steps: list[tuple[str, int]]) -> tuple[Model, NotOneTransaction | None]:
    """Take the steps as a handler would, up to the first that is refused, and say why it was."""
    model, delivery = Model(), Delivery(uuid4(), 1, 1, {})
    receipt = HandlerRun(delivery, Terms("h", RELAY, EPOCH))
    sessions = [bank.sessions() for _ in range(SESSIONS)]
    failure: NotOneTransaction | None = None
    try:
        with handling(receipt):
            async with OneTransaction(receipt, 60):
                for number, (kind, which) in enumerate(steps):
                    if kind in ("release", "undo") and len(model.open[which]) == 1:
                        continue
                    await take(sessions[which], kind, f"{number:02}")
                    model.note(kind, which, f"{number:02}")
    except NotOneTransaction as error:
        failure = error
    for session in sessions:
        await session.close()
    return model, failure


async def history(url: str, steps: list[tuple[str, int]]) -> None:
    note(f"steps: {steps}")
    engine, witness = engine_of(url), await asyncpg.connect(url)
    await witness.execute(RESET)
    try:
        model, failure = await run(Bank.on(engine), steps)
        stored = [row[0] for row in await witness.fetch(STORED)]
        opened = [row[0] for row in await witness.fetch(EVENTS)]
        receipts = await witness.fetchval("SELECT count(*) FROM outbox_receipts")
        pool: Any = engine.pool
        assert pool.checkedout() == 0
    finally:
        await witness.close()
        await engine.dispose()
    event("fails" if failure else "overlaps" if model.overlapped else "one after the other")
    if failure is not None:
        assert model.overlapped, f"what only reads is never in the way: {failure!r}"
        assert (stored, opened, receipts) == ([], [], 0)
        return
    kinds = {f"{number:02}": kind for number, (kind, _) in enumerate(steps)}
    assert stored == sorted(model.committed)
    assert opened == sorted(what for what in model.committed if kinds[what] == "flush")
    assert receipts == 1 or not model.committed


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        yield runner


@settings(max_examples=settings().max_examples // 4)
@given(steps=STEPS)
def test_what_the_sessions_of_an_atomic_run_committed_is_there_or_nothing_is(
    bank_url: str, runner: asyncio.Runner, steps: list[tuple[str, int]]
) -> None:
    """R6: and sessions that come one after the other are never refused."""
    runner.run(history(bank_url, steps))


@settings(max_examples=settings().max_examples // 4)
@given(steps=STEPS)
def test_sessions_one_after_the_other_are_never_refused(
    bank_url: str, runner: asyncio.Runner, steps: list[tuple[str, int]]
) -> None:
    """R6: whatever each of them does."""
    alone = [step for which in range(SESSIONS) for step in [*_of(steps, which), ("close", which)]]
    runner.run(history(bank_url, alone))


def _of(steps: list[tuple[str, int]], which: int) -> list[tuple[str, int]]:
    return [step for step in steps if step[1] == which]
