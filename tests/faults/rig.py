"""A cell's stage: a database of its own, relays and writers at work in it, and ways to see how far they are."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from attrs import Factory, define, field

from tests.brokers import OwnBroker
from tests.faults.clock import TooLate, until
from tests.faults.fleet import Fleet, Seat
from tests.faults.judge import STUCK
from tests.faults.server import RestartableServer
from tests.faults.tables import PLAIN, TRANSACTIONAL, UNORDERED, USUAL, Promise

CONNECT_SECONDS_MAX = 5.0
# By what name the rig's own connections go.
RIG = "faults-rig"
READY_SECONDS_MAX = 60.0
TROUBLE = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

EFFECTS = "SELECT count(*) FROM faults_effects"
LIVE = "SELECT count(*) FROM outbox_relays WHERE expires_at > clock_timestamp()"
# A relay registers first, and then what it carries has its cursors: from then on all is due. What a newer relay has
# renamed has none any more.
SUBSCRIBED = """
SELECT count(*) FROM outbox_relays WHERE process_id = $1 AND NOT EXISTS (
  SELECT FROM jsonb_object_keys(abilities) AS abilities (name) WHERE NOT EXISTS (
    SELECT FROM outbox_cursors WHERE subscription = name) AND NOT EXISTS (
    SELECT FROM outbox_subscriptions AS former WHERE former.name = abilities.name AND retired_at IS NOT NULL))
"""
# Of handlers that never fail by themselves, for events that can be decoded.
CHARGED = """
SELECT count(*) FROM outbox_deliveries WHERE attempts > 0 AND handler = ANY ($1) AND event_id <> ALL ($2)
"""
# What a relay that is gone still holds.
HELD = """
SELECT (SELECT count(*) FROM outbox_cursors WHERE lease_relay = ANY ($1))
     + (SELECT count(*) FROM outbox_deliveries WHERE status = 'leased' AND lease_relay = ANY ($1))
"""


@define(frozen=True)
class Scale:
    """How much of everything there is in a run."""

    events: int
    rate: float
    counters: int
    relays: int
    beats: int
    lease_seconds: float
    poll_seconds: float
    settle_seconds: float
    moved_seconds_max: float
    """How long the work of a crashed relay may stay where it is."""

    @property
    def relay_settings(self) -> dict[str, str]:
        """The relays' environment."""
        return {
            "OUTBOX_LEASE_SECONDS": str(self.lease_seconds),
            "OUTBOX_POLL_INTERVAL": str(self.poll_seconds),
        }


SHORT = Scale(
    events=500,
    rate=250,
    counters=30,
    relays=2,
    beats=4,
    lease_seconds=2,
    poll_seconds=0.5,
    settle_seconds=60,
    moved_seconds_max=12,
)
# The lease and the poll interval that ship.
LONG = Scale(
    events=5_000,
    rate=400,
    counters=150,
    relays=3,
    beats=6,
    lease_seconds=15,
    poll_seconds=5,
    settle_seconds=400,
    moved_seconds_max=30,
)


@define(eq=False)
class Rig:
    """What a cell works with."""

    server: RestartableServer
    database: str
    folder: Path
    scale: Scale
    seed: str
    carried: tuple[Promise, ...] = USUAL
    names: dict[str, list[str]] = Factory(dict)
    """Names under which a handler is registered, where they are not its own."""
    broker: OwnBroker | None = None
    undecodable: set[UUID] = Factory(set)
    """Events that nobody can decode, so that they must be dead."""
    injected: int = 0
    moved_seconds: float = 0.0
    remarks: list[str] = Factory(list)
    random: random.Random = field(init=False)
    fleet: Fleet = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make what depends on the rest."""
        self.random = random.Random(self.seed)
        self.fleet = Fleet(self.folder)

    # --- asking -------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The cell's database."""
        return self.server.url_of(self.database)

    @asynccontextmanager
    async def connection(self, at: str | None = None) -> AsyncIterator[asyncpg.Connection]:
        """A connection of the rig's own, which no fault looks for."""
        connection = await asyncpg.connect(
            at or self.url, timeout=CONNECT_SECONDS_MAX, server_settings={"application_name": RIG}
        )
        try:
            yield connection
        finally:
            connection.terminate()

    async def value(self, query: str, *arguments: Any, at: str | None = None) -> Any:
        """Ask for one value."""
        async with self.connection(at) as connection:
            return await connection.fetchval(query, *arguments)

    async def number(self, query: str, *arguments: Any, at: str | None = None) -> int | None:
        """Ask for a count; None while the server does not answer."""
        try:
            return int(await self.value(query, *arguments, at=at))
        except TROUBLE:
            return None

    # --- starting -----------------------------------------------------------------------------------

    async def start_relay(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        carried: Iterable[Promise] | None = None,
        names: Iterable[str] = (),
        at: str | None = None,
    ) -> Seat:
        """Start a relay, at another database if one is named, and return when it lives."""
        carries = [*(each.handler for each in (self.carried if carried is None else carried)), *names]
        seat = await self.fleet.add_relay(
            {
                "DATABASE_URL": self.url,
                "FAULTS_SEED": self.seed,
                "FAULTS_CARRIED": ",".join(carries),
                **self.scale.relay_settings,
                **(settings or {}),
            }
        )
        seat.home = at or self.url
        await self.lives(seat)
        return seat

    async def start_relays(self, settings: Mapping[str, str] | None = None) -> None:
        """Start as many as the scale says."""
        await asyncio.gather(*(self.start_relay(settings) for _ in range(self.scale.relays)))

    async def lives(self, seat: Seat) -> None:
        """Wait until a relay has registered."""

        async def registered() -> bool:
            return bool(seat.alive and await self.number(SUBSCRIBED, seat.pid, at=seat.home))

        await until(registered, f"the relay of {seat.log.name} lives", seconds=READY_SECONDS_MAX)

    async def start_writers(self, settings: Mapping[str, str] | None = None, *, share: float = 1.0) -> None:
        """Start two writers, who write a share of the cell's events between them."""
        for _ in range(2):
            await self.fleet.add_writer(
                {
                    "DATABASE_URL": self.url,
                    "FAULTS_SEED": self.seed,
                    "FAULTS_EVENTS": str(int(self.scale.events * share / 2)),
                    "FAULTS_RATE": str(self.scale.rate / 2),
                    "FAULTS_COUNTERS": str(self.scale.counters),
                    **(settings or {}),
                }
            )

    # --- moments ------------------------------------------------------------------------------------

    async def beats(self) -> AsyncIterator[int]:
        """Moments for a fault, evenly through the work; the last ones come while what is written is worked off."""
        share = self.scale.events * len(self.carried) // (self.scale.beats + 1)
        for number in range(1, self.scale.beats + 1):
            if not await self.has_done(number * share):
                return
            self.injected += 1
            yield number

    async def has_done(self, effects: int) -> bool:
        """Wait until there are so many effects; False if it takes too long."""

        async def done() -> bool:
            return (await self.number(EFFECTS) or 0) >= effects

        try:
            await until(done, "more effects", seconds=self.scale.settle_seconds)
        except TooLate:
            return False
        return True

    def any_relay(self) -> Seat:
        """One of the relays that are alive."""
        return self.random.choice([seat for seat in self.fleet.relays if seat.alive])

    async def kill(self, seat: Seat) -> None:
        """SIGKILL a relay, and measure how long its work stays where it is."""
        pid = seat.pid
        relays = await self.relays_of(pid)
        seat.send(signal.SIGKILL)
        await self.watch_takeover(relays)

    async def relays_of(self, pid: int) -> list[Any]:
        """The relay ids of a process."""
        async with self.connection() as connection:
            rows = await connection.fetch("SELECT id FROM outbox_relays WHERE process_id = $1", pid)
        return [row["id"] for row in rows]

    async def watch_takeover(self, relays: list[Any]) -> None:
        """Wait until nothing is held by relays that are gone."""
        limit = self.scale.moved_seconds_max

        async def moved() -> bool:
            return await self.number(HELD, relays) == 0

        try:
            took = await until(moved, "a crashed relay's work moves", seconds=limit)
        except TooLate as error:
            self.remarks.append(str(error))
            took = limit
        self.moved_seconds = max(self.moved_seconds, took)

    async def goes_on(self) -> None:
        """See that there are effects again after a fault, if any are left to come, and measure how long that takes."""
        before, limit = await self.number(EFFECTS), self.scale.moved_seconds_max

        async def more() -> bool:
            done = await self.number(EFFECTS)
            if done is not None and before is not None and done > before:
                return True
            return not self.fleet.writing and await self.number(STUCK) == 0

        try:
            took = await until(more, "handlers go on", seconds=limit)
        except TooLate as error:
            self.remarks.append(str(error))
            took = limit
        self.moved_seconds = max(self.moved_seconds, took)

    async def nobody_is_charged(self, fault: str) -> None:
        """See that what is no handler's fault is charged to none (R7, R9)."""
        innocent = [each.handler for each in (TRANSACTIONAL, PLAIN, UNORDERED)]
        if charged := await self.value(CHARGED, innocent, list(self.undecodable)):
            self.remarks.append(f"{charged} deliveries are charged for {fault}")

    # --- ending -------------------------------------------------------------------------------------

    async def written(self) -> None:
        """Wait until the writers have written all."""
        seconds = self.scale.settle_seconds + READY_SECONDS_MAX

        async def ended() -> bool:
            # How it has ended is known a moment later than that it has.
            return not self.fleet.writing and all(seat.exits for seat in self.fleet.writers)

        await until(ended, "the writers have written all", seconds=seconds)
        for seat in self.fleet.writers:
            if seat.exits[-1] != 0:
                self.remarks.append(f"{seat.log.name}: the writer ended with {seat.exits[-1]}")

    async def settled(self, seconds: float | None = None) -> bool:
        """Wait until nothing is left to do; False if it takes too long."""

        async def nothing_left() -> bool:
            return await self.number(STUCK) == 0

        try:
            await until(
                nothing_left, "all is settled", seconds=seconds or self.scale.settle_seconds, beat_seconds=0.2
            )
        except TooLate:
            return False
        return True

    async def end_relays(self) -> None:
        """Ask every relay to stop, which it must do by itself."""
        seats = [seat for seat in self.fleet.relays if not seat.closed]
        await asyncio.gather(*(self.lives(seat) for seat in seats))
        codes = await asyncio.gather(*(seat.close() for seat in seats))
        if any(codes):
            self.remarks.append(f"asked to stop at the end, relays have ended with {codes}")

    async def heal(self) -> None:
        """Let every relay live and move."""
        for seat in self.fleet.relays:
            seat.send(signal.SIGCONT)
