"""The stage of tests/relaying.py on the new ground: a relay that reads the log by cursors."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import attrs

from outbox_kernel.infrastructure.brokers import Outlet, Publisher
from outbox_kernel.infrastructure.log_relay.lease import Lease
from outbox_kernel.infrastructure.log_relay.log import Log
from outbox_kernel.infrastructure.log_relay.relay import OutboxRelay
from outbox_kernel.infrastructure.log_relay.renaming import Renaming
from outbox_kernel.infrastructure.log_relay.upkeep import Upkeep
from outbox_kernel.infrastructure.outbox.sql import in_schema, leases
from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.relay.roster import Carried, CarriedAny
from outbox_kernel.infrastructure.relay.store import Store
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests import relaying

relaying.TABLES = (
    *relaying.TABLES,
    "outbox_cursors",
    "outbox_progress",
    "outbox_cursors_past",
    "outbox_servers",
)


class FromBeginning(OutboxRelay):
    """A relay whose new subscriptions get all of the log."""

    def _carried(self) -> list[CarriedAny]:
        return [
            attrs.evolve(each, registration=attrs.evolve(each.registration, start="beginning"))
            if isinstance(each, Carried)
            else attrs.evolve(each, from_beginning=True)
            for each in super()._carried()
        ]


def carrying(*names: str) -> Any:
    """What a claim asks of subscribers."""
    carried = SimpleNamespace(kind="handler", abilities={"bank.noted": 1}, renamed_from=None, on_dead="park")
    workers = SimpleNamespace(room=1)
    return {
        name: SimpleNamespace(name=name, carried=carried, workers=workers, is_going=True) for name in names
    }


@attrs.define(eq=False)
class LogStage(relaying.Stage):
    """One outbox, and all that a test does to it and asks of it."""

    def relay(
        self,
        *handlers: HandlerRegistration,
        at: float | None = 0,
        from_beginning: bool = True,
        publishers: Mapping[Publisher, Outlet] | None = None,
        **settings: Any,
    ) -> OutboxRelay:
        """A relay that carries these, from the beginning of the log on or from now on; at None: the server's time."""
        chosen: dict[str, Any] = {"lease_seconds": relaying.LEASE_SECONDS, **settings}
        relay = (FromBeginning if from_beginning else OutboxRelay)(
            self.engine,
            self.container,
            handlers=handlers,
            publishers=publishers,
            settings=RelaySettings(**chosen),
            deliver_to_nobody=not (handlers or publishers),
            now=None if at is None else self.at(at),
        )
        self.relays.append(relay)
        return relay

    async def log(self) -> Log:
        """The log under the lease of a relay that does nothing else."""
        log = Log(self.line(), Lease(), None, self.at(0))
        await Store(None, self.at(0)).register(
            log.line, log.lease, relaying.LEASE_SECONDS, (1, "here", "1", "{}", "{}", False)
        )
        return log

    async def events(self) -> dict[str, str]:
        """Status of each event."""
        rows = await self.witness.fetch(
            "SELECT payload->>'what' AS what, status.status FROM outbox_events "
            "JOIN outbox_status_of_log AS status USING (event_id) ORDER BY position"
        )
        return {row["what"]: row["status"] for row in rows}

    async def rewind(self) -> None:
        """As after a crash between handlers' commits and the progress that was to follow: all is read again."""
        await self.witness.execute("UPDATE outbox_cursors SET rewind_to = 0")

    def log_under(self, lease: Lease, *, at: float = 0) -> Log:
        """What a relay under that lease does at that time."""
        return Log(self.line(), lease, None, self.at(at))

    async def owner_that_vanishes(self, *names: str, at: float = 0) -> Log:
        """A relay that takes all cursors of these subscriptions and is never heard of again."""
        log = self.log_under(Lease(), at=at)
        row = (log.lease.relay, log.lease.epoch, relaying.LEASE_SECONDS, 1, "gone", "1", "{}", "{}", True)
        await log.line.fetch(in_schema(leases.REGISTER, None), *row, log.now)
        await log.take((name, shard) for name in names for shard in range(SHARDS))
        return log

    async def take_over(self, *, at: float) -> tuple[int, int]:
        """What each relay does now and then: end leases that ran out by then, free what they held."""
        cursors, deliveries = await self._held()
        log = self.log_under(Lease(), at=at)
        await Upkeep(log, Renaming.of(log, []), 0.0, lambda: None).take_over()
        cursors_left, deliveries_left = await self._held()
        return cursors - cursors_left, deliveries - deliveries_left

    async def _held(self) -> tuple[int, int]:
        return tuple(
            await self.witness.fetchrow(
                "SELECT (SELECT count(lease_relay) FROM outbox_cursors), "
                "(SELECT count(lease_relay) FROM outbox_deliveries)"
            )
        )

    async def owners(self, name: str) -> dict[UUID | None, int]:
        """How many cursors of a subscription each relay owns."""
        rows = await self.witness.fetch(
            "SELECT lease_relay, count(*) FROM outbox_cursors WHERE subscription = $1 GROUP BY 1", name
        )
        return {row["lease_relay"]: row["count"] for row in rows}

    async def status(self, what: str) -> Any:
        """What became of one event."""
        return await self.witness.fetchrow(
            "SELECT status.* FROM outbox_events JOIN outbox_status_of_log AS status USING (event_id) "
            "WHERE payload->>'what' = $1",
            what,
        )
