"""Histories of one outbox and a few relays: what an application, its relays, time and an operator do to it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from outbox_kernel.infrastructure.operations.desk import Desk
from outbox_kernel.infrastructure.operations.mending import Chosen, change
from outbox_kernel.infrastructure.operations.subscriptions import pause, resume
from outbox_kernel.infrastructure.outbox.sql.operations import RETRY, SKIP
from tests.properties.chronicle import Chronicle, Place, Put
from tests.properties.fleet import (
    AUDIT,
    BOOK,
    HANDLED,
    LEASE_SECONDS,
    LEDGER,
    LOGICAL,
    MAIL,
    TYPES,
    VERSIONS,
    Ship,
    later,
)

AHEAD_SECONDS = 60.0
SHIPS_MAX = 3
# The last belongs to events that nobody numbers; None to events of no aggregate.
AGGREGATES: tuple[UUID | None, ...] = (UUID(int=1), UUID(int=2), UUID(int=3), None)
UNNUMBERED = UUID(int=3)
KINDS = ("bank.noted", "bank.noted", "bank.paid", "bank.noted", "bank.announced")
ROUNDS_MAX = 60
RENEWAL_SECONDS = LEASE_SECONDS * 2 / 3

PUT = """
INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version,
                           payload, occurred_at, not_before)
VALUES ($1, $2, 1, $3, $4, $5, $6::text::jsonb, clock_timestamp(), $7) RETURNING position
"""
EMPTY = """
TRUNCATE outbox_events, outbox_deliveries, outbox_receipts, outbox_subscriptions, outbox_relays, bank_journal
RESTART IDENTITY
"""
RESUME_ALL = "UPDATE outbox_subscriptions SET paused_at = NULL, revision = revision + 1"


class Voyage(Chronicle):
    """One history. Each action takes who, which and a flag; what is not possible does nothing."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.versions: dict[UUID, int] = {}
        self.ships: list[Ship] = []
        self.late: UUID | None = None
        self.late_position: int | None = None
        self.renamed = False
        self.carried: set[str] = set()
        self.now: datetime = self.run(self._begin())

    async def _begin(self) -> datetime:
        await self.place.witness.execute(EMPTY)
        now: datetime = await self.place.witness.fetchval("SELECT clock_timestamp()")
        return later(now, AHEAD_SECONDS)

    # --- the application --------------------------------------------------------------------------------

    def commit(self, which: int, flag: bool) -> None:
        """One or two events of an aggregate, or of none."""
        aggregate = AGGREGATES[which % len(AGGREGATES)]
        if aggregate is not None and aggregate == self.late:
            return  # its row is locked by the transaction that is open
        for number in range(1 + which // 2 + flag):
            self._keep(
                self.run(self._put(self.place.witness, aggregate, which + number)), aggregate, which + number
            )

    def commit_for_later(self, which: int, flag: bool) -> None:
        """An event of an aggregate, or of none, that is handled from a moment on, which may have passed."""
        aggregate = AGGREGATES[which % len(AGGREGATES)]
        if aggregate is not None and aggregate == self.late:
            return
        moment = later(self.now, (-5.0, 2.0, 40.0)[which % 3])
        position = self.run(self._put(self.place.witness, aggregate, which, moment))
        # Its aggregate's order is nothing to it.
        self._keep(position, None, which, moment)

    def begin_late(self, which: int, flag: bool) -> None:
        """A transaction takes a position and stays open."""
        if self.late is None:
            self.late = AGGREGATES[which % 2]
            self.run(self.place.writer.execute("BEGIN"))
            self.late_position = self.run(self._put(self.place.writer, self.late, which))

    def end_late(self, which: int, flag: bool) -> None:
        """It commits, mostly."""
        if self.late is None or self.late_position is None:
            return
        self.run(self.place.writer.execute("ROLLBACK" if flag and which % 2 else "COMMIT"))
        if flag and which % 2:
            self.versions[self.late] -= 1
        else:
            event_type = self.run(
                self.place.witness.fetchval(
                    "SELECT event_type FROM outbox_events WHERE position = $1", self.late_position
                )
            )
            self._keep(self.late_position, self.late, KINDS.index(event_type))
        self.late = self.late_position = None

    async def _put(
        self, connection: Any, aggregate: UUID | None, which: int, not_before: datetime | None = None
    ) -> int:
        number = None
        if aggregate is not None and aggregate != UNNUMBERED:
            number = self.versions[aggregate] = self.versions.get(aggregate, 0) + 1
        kind = KINDS[which % len(KINDS)]
        payload = {"what": "x", **({"amount": 1} if kind == "bank.paid" else {})}
        position: int = await connection.fetchval(
            PUT,
            *(uuid4(), kind, "bank.wallet" if aggregate else None, aggregate, number, json.dumps(payload)),
            not_before,
        )
        return position

    def _keep(
        self, position: int, aggregate: UUID | None, which: int, not_before: datetime | None = None
    ) -> None:
        kind = KINDS[which % len(KINDS)]
        due = {name for name in self.carried if TYPES[kind] in HANDLED[name]}
        self.put[position] = Put(aggregate, kind, due, not_before)

    # --- the relays -------------------------------------------------------------------------------------

    def set_out(self, which: int, flag: bool) -> None:
        """A relay starts; once the newest code has started, the older does not start any more."""
        if len(self.ships) >= SHIPS_MAX:
            return
        versions = ["new", "some"] if self.renamed else ["old", "all", "some", *(["new"] if flag else [])]
        version = versions[which % len(versions)]
        self.renamed = self.renamed or version == "new"
        ship = Ship(self.place.sea, self.log, version, self.now)
        self.run(ship.set_out())
        self.ships.append(ship)
        self.carried |= {LOGICAL[name] for name in VERSIONS[version]}

    def sink(self, which: int, flag: bool) -> None:
        """A relay vanishes."""
        ship = self._ship(which)
        self.run(ship.sink())
        self.ships.remove(ship)

    def stop_in_order(self, which: int, flag: bool) -> None:
        ship = self._ship(which)
        self.run(ship.stop_in_order())
        self.ships.remove(ship)

    def claim_events(self, which: int, flag: bool) -> None:
        self._step(which, Ship.claim_events)

    def claim_deliveries(self, which: int, flag: bool) -> None:
        self._step(which, Ship.claim_deliveries)

    def claim_known(self, which: int, flag: bool) -> None:
        self._step(which, Ship.claim_known)

    def claim_suspect(self, which: int, flag: bool) -> None:
        self._step(which, Ship.claim_suspect)

    def let_go_on(self, which: int, flag: bool) -> None:
        self._step(which, Ship.let_go_on)

    def watch(self, which: int, flag: bool) -> None:
        self._step(which, Ship.watch)

    def write(self, which: int, flag: bool) -> None:
        self._step(which, Ship.write)

    def renew(self, which: int, flag: bool) -> None:
        self._step(which, Ship.renew)

    def maintain(self, which: int, flag: bool) -> None:
        self._step(which, Ship.maintain)

    def deliver(self, which: int, flag: bool) -> None:
        """As a relay does when nothing comes between."""
        for step in (Ship.renew, Ship.claim_events, Ship.write, Ship.claim_deliveries, Ship.write):
            self._step(which, step)

    def vanish_in_a_claim(self, which: int, flag: bool) -> None:
        """The database has committed the claim, and its relay is gone."""
        ship = self._ship(which)
        ship.sunk = True
        self.run(ship.claim_events())
        if flag:
            self.run(ship.claim_deliveries())
        self.sink(which, flag)

    def tell_plans(self, plans: list[str]) -> None:
        """What the handlers do next."""
        for ship in self.ships:
            ship.plans = plans

    def _step(self, which: int, step: Callable[[Ship], Awaitable[Any]]) -> None:
        self.run(step(self._ship(which)))

    def _ship(self, which: int) -> Ship:
        if not self.ships:
            self.set_out(which, flag=False)
        return self.ships[which % len(self.ships)]

    def vanish_and_be_replaced(self, which: int, flag: bool) -> None:
        """Between a claim and its outcome a relay vanishes, and another finds out."""
        if flag:
            self.vanish_in_a_claim(which, flag=True)
        else:
            self.claim_deliveries(which, flag)
            self.sink(which, flag)
        self._move(LEASE_SECONDS + 1)
        self.maintain(which, flag)

    # --- time and the operator --------------------------------------------------------------------------

    def wait(self, which: int, flag: bool) -> None:
        """Time passes, a little or much; one of the relays may sleep through it, its lease with it."""
        asleep = self._ship(which // 3) if flag else None
        self._move((1.0, LEASE_SECONDS + 1, 31.0)[which % 3], asleep)

    def _move(self, seconds: float, asleep: Ship | None = None) -> None:
        while seconds > 0:
            self.now = later(self.now, min(seconds, RENEWAL_SECONDS))
            seconds -= RENEWAL_SECONDS
            for ship in self.ships:
                ship.tell_time(self.now)
                if ship is not asleep:
                    self.run(ship.keep_lease())

    def hold(self, which: int, flag: bool) -> None:
        """Pause a handler, or let it go on."""
        names = [BOOK if self.renamed else LEDGER, AUDIT, MAIL]
        name = names[which % 3]
        if LOGICAL[name] in self.carried:
            self.run((pause if flag else resume)(self._desk(), name))

    def mend(self, which: int, flag: bool) -> None:
        """Retry or skip a delivery that an operator may touch."""
        touchable = [
            each for each in self.seen.deliveries if each["status"] in ("waiting", "dead", "skipped")
        ]
        if not touchable:
            return
        row = touchable[which % len(touchable)]
        chosen = Chosen(row["position"], row["event_id"], row["handler"], row["status"])
        self.run(change(self._desk(), [chosen], RETRY if flag else SKIP))
        self.retried.add((row["position"], LOGICAL[row["handler"]]))

    def _desk(self) -> Desk:
        return Desk(self.place.witness, now=self.now)

    # --- the end ----------------------------------------------------------------------------------------

    def end(self) -> None:
        """All relays vanish, one that carries everything comes: it delivers all that there is."""
        if self.late is not None:
            self.end_late(0, flag=False)
        while self.ships:
            self.sink(0, flag=False)
        self.run(self.place.witness.execute(RESUME_ALL))
        self.check()
        self._move(LEASE_SECONDS + 1)
        self.carried |= set(HANDLED)
        ship = Ship(self.place.sea, self.log, "new", self.now)
        self.ships.append(ship)
        self.run(ship.set_out())
        self._drain(ship)
        for _ in range(ROUNDS_MAX):
            dead = [row for row in self.seen.deliveries if row["status"] == "dead"]
            if not dead:
                break
            for row in dead:
                chosen = Chosen(row["position"], row["event_id"], row["handler"], row["status"])
                self.run(change(self._desk(), [chosen], RETRY))
                self.retried.add((row["position"], LOGICAL[row["handler"]]))
            self._drain(ship)
        assert {row["status"] for row in self.seen.events.values()} <= {"delivered"}
        for position, put in self.put.items():
            for name in put.due:
                key = position, name
                assert key in self.log.succeeded | self.seen.passed, f"{name} never had {position}"
        self.run(ship.stop_in_order())

    def _drain(self, ship: Ship) -> None:
        for _ in range(ROUNDS_MAX):
            self.run(ship.maintain())
            claimed = self.run(ship.work())
            self.check()
            if not (claimed or ship.has_reason) and self._at_rest():
                return
            self._move(1.0 if claimed else 31.0)
        raise AssertionError(f"it never comes to rest: {self.seen}")

    def _at_rest(self) -> bool:
        """Nothing is left but what waits behind a dead letter."""
        if any(row["status"] in ("pending", "leased") for row in self.seen.events.values()):
            return False
        unsettled = [row for row in self.seen.deliveries if not row["settled"]]
        parked = {(row["order_key"], row["handler"]) for row in unsettled if row["status"] == "dead"}
        return all((row["order_key"], row["handler"]) in parked for row in unsettled)
