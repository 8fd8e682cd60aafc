"""The outbox as a relay sees it: each method one statement, fenced by the relay's lease."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import attrs

from outbox_kernel.infrastructure.outbox.sql import claims, in_schema, leases, outcomes, subscriptions
from outbox_kernel.infrastructure.outbox.sql.receipts import DATABASE
from outbox_kernel.infrastructure.relay.roster import Subscription
from outbox_kernel.infrastructure.relay.work import ClaimedDelivery, ClaimedEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from outbox_kernel.infrastructure.relay.due_turns import TurnKey
    from outbox_kernel.infrastructure.relay.line import Line, Step
    from outbox_kernel.infrastructure.relay.roster import Ability, CarriedAny
    from outbox_kernel.infrastructure.relay.work import Outcome


@attrs.frozen
class Lease:
    """What fences every write of a relay."""

    relay: UUID = attrs.field(factory=uuid4)
    epoch: int = 1

    def next(self) -> Lease:
        """Return the lease after this one was lost."""
        return Lease(self.relay, self.epoch + 1)


@attrs.frozen
class EventScan:
    """What a claim of events saw: whether the lease held, whether there may be more, where it ended."""

    held: bool
    more: bool
    last: int | None
    lowest: int | None
    revision: int


@attrs.frozen
class OpenScan:
    """What there is to claim from: the lowest open position, the highest there is, and who may yet write."""

    lowest: int | None
    age_seconds: float | None
    last: int
    oldest_transaction: int
    next_transaction: int


@attrs.frozen
class DeliveryScan:
    """What a claim of deliveries saw: `last` is where each handler's next one hops on, `more` what was too large."""

    held: bool
    seen: int
    more: bool
    last: dict[str, str]
    suspects: bool
    next_in_seconds: float | None


# Of payloads, about; few come near it, but a thousand of the largest would be a gigabyte.
CLAIM_BYTES_MAX = 16 * 1024 * 1024


@attrs.frozen
class Store:
    """Statements of one schema, sent over a relay's lines; `now` is for tests."""

    schema: str | None = None
    now: datetime | None = None

    def _sql(self, statement: str) -> str:
        return in_schema(statement, self.schema)

    async def claim_events(
        self,
        line: Line,
        lease: Lease,
        *,
        begin: int,
        lowest: int,
        limit: int,
        names: Sequence[str] = (),
        settled_below: int = 0,
    ) -> tuple[list[ClaimedEvent], EventScan]:
        """Take pending events in order."""
        *rows, report = await line.fetch_as(
            ClaimedEvent,
            self._sql(claims.CLAIM_EVENTS),
            *(
                lease.relay,
                lease.epoch,
                begin,
                lowest,
                limit,
                self.now,
                CLAIM_BYTES_MAX,
                names,
                settled_below,
            ),
        )
        rows.sort(key=_position)
        return rows, EventScan(**json.loads(report["report"]))

    async def claim_deliveries(
        self,
        line: Line,
        lease: Lease,
        abilities: Sequence[Ability],
        *,
        after: Mapping[str, str],
        heads_max: int,
        turns_max: int,
        turn_max: int,
        suspects: bool = False,
    ) -> tuple[list[ClaimedDelivery], DeliveryScan]:
        """Take deliveries whose turn it is, with those that follow them, from some turns on."""
        handlers = sorted({each.handler for each in abilities})
        hops = handlers, [after.get(handler, "") for handler in handlers]
        limits = (heads_max, 1, 1) if suspects else (heads_max, turns_max, turn_max)
        return await self._claim_turns(line, lease, abilities, (*hops, *limits, suspects), [])

    async def claim_turns(
        self,
        line: Line,
        lease: Lease,
        abilities: Sequence[Ability],
        turns: Sequence[TurnKey],
        *,
        turn_max: int,
    ) -> tuple[list[ClaimedDelivery], DeliveryScan]:
        """Take deliveries of these turns, where it is theirs."""
        return await self._claim_turns(
            line, lease, abilities, ([], [], 0, len(turns), turn_max, False), turns
        )

    async def _claim_turns(
        self,
        line: Line,
        lease: Lease,
        abilities: Sequence[Ability],
        which: tuple[Any, ...],
        turns: Sequence[TurnKey],
    ) -> tuple[list[ClaimedDelivery], DeliveryScan]:
        *columns, former, on_dead, _ = _columns(abilities, 6)
        *rows, report = await line.fetch_as(
            ClaimedDelivery,
            self._sql(claims.CLAIM_DELIVERIES),
            *(
                lease.relay,
                lease.epoch,
                *columns,
                *which,
                self.now,
                former,
                on_dead,
                CLAIM_BYTES_MAX,
                sorted({each.handler for each in abilities if each.runs_code}),
                *_columns(turns, 2),
            ),
        )
        rows.sort(key=_place)
        return rows, DeliveryScan(**json.loads(report["report"]))

    async def lowest_open(self, line: Line) -> OpenScan:
        """Return where a scan needs to begin, and for how many seconds that event has been there."""
        [row] = await line.fetch(self._sql(claims.LOWEST_OPEN), self.now)
        return OpenScan(**row)

    async def mark(
        self,
        line: Line,
        lease: Lease,
        delivered: Sequence[int],
        left: Sequence[tuple[int, Sequence[Outcome]]],
    ) -> None:
        """Close events that all have handled, and let others go on as deliveries: all of them or none.

        Of two events of an aggregate, one of each kind, a crash in between would run the first again, after the second.
        """
        given = (lease.relay, lease.epoch, delivered, self.now)
        if not left and len(await line.fetch(self._sql(outcomes.MARK_DELIVERED), *given)) == len(delivered):
            return
        positions, columns = [position for position, _ in left], _columns(_left(left), 9)
        leave = (lease.relay, lease.epoch, positions, *columns, self.now)
        await line.transact(
            [
                (self._sql(outcomes.MARK_HANDLED), given),
                (self._sql(outcomes.LEAVE_FIRST_PASS), leave),
                # Their rows are locked by now, so that this sees every delivery there is.
                (self._sql(outcomes.CLOSE_EVENTS), lambda rows: (_with_others(rows), self.now)),
            ]
        )

    async def settle(self, line: Line, lease: Lease, settled: Sequence[tuple[ClaimedEvent, Outcome]]) -> int:
        """Write how deliveries went, and what that makes of their events; return how many were still ours."""
        positions = sorted({row.position for row, _ in settled})
        columns = _columns(
            [
                (
                    *(row.event_id, each.handler, each.status, each.attempts, each.on_dead),
                    *(each.delay_seconds, each.error_message),
                )
                for row, each in settled
            ],
            7,
        )
        _, written, _ = await line.transact(
            [
                (self._sql(outcomes.LOCK_EVENTS), (positions,)),
                (
                    self._sql(outcomes.SETTLE_DELIVERIES),
                    (lease.relay, lease.epoch, *columns, self.now),
                ),
                (self._sql(outcomes.CLOSE_EVENTS), (positions, self.now)),
            ]
        )
        return len(written)

    async def release_events(self, line: Line, lease: Lease, positions: Sequence[int]) -> None:
        """Give events back."""
        await line.fetch(self._sql(outcomes.RELEASE_EVENTS), lease.relay, lease.epoch, positions, self.now)

    async def release_deliveries(self, line: Line, lease: Lease, keys: Sequence[tuple[UUID, str]]) -> None:
        """Give deliveries back."""
        await line.fetch(
            self._sql(outcomes.RELEASE_DELIVERIES), lease.relay, lease.epoch, *_columns(keys, 2), self.now
        )

    async def register(self, line: Line, lease: Lease, seconds: float, who: Sequence[Any]) -> None:
        """Begin to live."""
        await line.fetch(self._sql(leases.REGISTER), lease.relay, lease.epoch, seconds, *who, self.now)

    async def database(self, line: Line) -> str:
        """Tell the outbox's database from every other one."""
        ((database,),) = await line.fetch(DATABASE)
        return str(database)

    async def renew(self, line: Line, lease: Lease, seconds: float) -> bool:
        """Live on; False if the lease has run out or was ended."""
        return bool(await line.fetch(self._sql(leases.RENEW), lease.relay, lease.epoch, seconds, self.now))

    async def tell_pauses(self, line: Line, lease: Lease, pauses: str) -> None:
        """Write down which publishers this relay has paused, as JSON."""
        await line.fetch(self._sql(leases.TELL_PAUSES), lease.relay, lease.epoch, pauses)

    async def resign(self, line: Line, lease: Lease) -> None:
        """Live no longer, and hold nothing."""
        step: Step = (self._sql(leases.RESIGN), (lease.relay, lease.epoch))
        await line.transact([step, *self._give_back(lease.relay, lease.epoch)])

    async def give_back(self, line: Line, lease: Lease) -> None:
        """Hold nothing of what was claimed before this epoch."""
        await line.transact(self._give_back(lease.relay, lease.epoch - 1))

    def _give_back(self, relay: UUID, epoch: int) -> list[Step]:
        return [
            (self._sql(leases.GIVE_BACK_EVENTS), (relay, epoch, self.now)),
            (self._sql(leases.GIVE_BACK_DELIVERIES), (relay, epoch, self.now)),
        ]

    async def any_expired(self, line: Line) -> bool:
        """Whether a lease has run out."""
        [row] = await line.fetch(self._sql(leases.ANY_EXPIRED), self.now)
        return bool(row["found"])

    async def take_over(self, line: Line) -> tuple[int, list[Any]]:
        """End leases that ran out, and free what nobody living holds; return how many events, and deliveries."""
        _, events, deliveries, _, _ = await line.transact(
            [
                (self._sql(leases.EXPIRE), (self.now,)),
                (self._sql(leases.TAKE_OVER_EVENTS), (self.now,)),
                (self._sql(leases.TAKE_OVER_DELIVERIES), (self.now,)),
                (self._sql(outcomes.LOCK_EVENTS), lambda rows: (_dead(rows[2]),)),
                (self._sql(outcomes.CLOSE_EVENTS), lambda rows: (_dead(rows[2]), self.now)),
            ]
        )
        return len(events), deliveries

    async def subscribe(self, line: Line, carried: Iterable[CarriedAny]) -> None:
        """Say what this relay carries, and take over what it had under former names."""
        every = list(carried)
        rows = [(each.name, each.kind, json.dumps(each.subscribed_to), each.ordered) for each in every]
        # In one transaction: whoever claims meanwhile must not find both of a handler's names due.
        step: Step = (self._sql(subscriptions.SUBSCRIBE), (*_columns(rows, 4), self.now))
        names, former = former_names(every)
        await line.transact([step, *(self._renaming(names, former) if names else [])])

    async def rename_deliveries(self, line: Line, names: Sequence[str], former: Sequence[str]) -> None:
        """Move deliveries from former names."""
        await line.transact(self._renaming(names, former))

    def _renaming(self, names: Sequence[str], former: Sequence[str]) -> list[Step]:
        return [
            (self._sql(subscriptions.RETIRE), (former, self.now)),
            (self._sql(subscriptions.RENAME_DELIVERIES), (names, former)),
            (self._sql(subscriptions.DROP_FORMER_DELIVERIES), (names, former)),
            (self._sql(outcomes.LOCK_EVENTS), lambda rows: (_positions(rows[-1]),)),
            (self._sql(outcomes.CLOSE_EVENTS), lambda rows: (_positions(rows[-2]), self.now)),
        ]

    async def former_at_work(self, line: Line, former: Sequence[str]) -> bool:
        """Whether relays of older code may have written under former names since they were moved."""
        [row] = await line.fetch(self._sql(subscriptions.FORMER_AT_WORK), former)
        return bool(row["found"])

    async def rename_receipts(
        self, line: Line, names: Sequence[str], former: Sequence[str], *, after: UUID, limit: int
    ) -> UUID | None:
        """Move a window of receipts from former names; return where the next begins, None at the end."""
        [row] = await line.fetch(self._sql(subscriptions.RENAME_RECEIPTS), names, former, after, limit)
        last: UUID | None = row["last"]
        return last

    async def subscriptions(self, line: Line) -> tuple[list[Subscription], int]:
        """Return all subscriptions and their revision."""
        rows = await line.fetch(self._sql(subscriptions.SUBSCRIPTIONS))
        found = [
            Subscription(
                row["name"],
                row["kind"],
                tuple(row["patterns"]),
                row["ordered"],
                row["paused"],
                row["retired"],
            )
            for row in rows
        ]
        return found, rows[0]["revision"] if rows else 0


def former_names(carried: Iterable[CarriedAny]) -> tuple[list[str], list[str]]:
    """Return the names of those that were renamed, and what they were renamed from."""
    names = {each.name: each.renamed_from for each in carried}
    renamed = [(name, former) for name, former in names.items() if former is not None]
    return [name for name, _ in renamed], [former for _, former in renamed]


def _position(row: ClaimedEvent) -> int:
    return row.position


def _place(row: ClaimedDelivery) -> int:
    return row.place


def _left(left: Sequence[tuple[int, Sequence[Outcome]]]) -> list[tuple[Any, ...]]:
    return [
        (
            *(position, each.handler, each.order_key, each.status, each.attempts, each.takeovers),
            *(each.on_dead, each.delay_seconds, each.error_message),
        )
        for position, outcomes_ in left
        for each in outcomes_
    ]


def _positions(rows: Sequence[Any]) -> list[int]:
    return sorted({row["position"] for row in rows})


def _with_others(rows: Sequence[Sequence[Any]]) -> list[int]:
    return sorted(row["position"] for step in rows for row in step if row["has_others"])


def _dead(rows: Sequence[Any]) -> list[int]:
    return sorted({row["position"] for row in rows if row["status"] == "dead"})


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Turn rows into the arrays that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
