"""What an event or a delivery waits for, and who holds it: in the words of `outbox show` (O1, R4, R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.abilities import NOT_CARRIED, relays, why_not
from outbox_kernel.infrastructure.outbox.sql.inspection import EARLIER_DELIVERY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from outbox_kernel.infrastructure.operations.abilities import Relay
    from outbox_kernel.infrastructure.operations.desk import Desk

TURN = "its turn"
PAUSED = "an operator: its handler is paused, `outbox resume`"


@attrs.frozen
class Waits:
    """What is known of relays and time while one event is looked at."""

    desk: Desk
    found: Sequence[Relay]
    now: datetime

    @classmethod
    async def at(cls, desk: Desk) -> Waits:
        """Ask who lives, and what time it is."""
        return cls(desk, await relays(desk), await desk.clock())

    @property
    def live(self) -> list[Relay]:
        """The relays that live."""
        return [relay for relay in self.found if relay.live]

    def to_be_read(self, subscription: Mapping[str, Any]) -> str:
        """Say what an event waits for that a subscription has not come to."""
        name = subscription["name"]
        if not self.live:
            return "a relay: none lives"
        carrying = [relay for relay in self.live if name in relay.abilities]
        if not carrying:
            return f"a relay: {NOT_CARRIED}"
        if subscription["paused_at"] is not None:
            return PAUSED
        told = [relay.pauses[name]["reason"] for relay in carrying if name in relay.pauses]
        return f"what it is delivered to: {told[0]}" if told else "the next read"

    async def of_delivery(
        self, delivery: Mapping[str, Any], event: Mapping[str, Any], *, is_paused: bool
    ) -> str | None:
        """Say what a delivery waits for; of one that does not wait, nothing."""
        if delivery["status"] == "dead":
            return "an operator: `outbox retry` or `outbox skip`"
        if delivery["status"] != "waiting":
            return None
        where = {name: delivery[name] for name in ("order_key", "handler", "position")}
        for earlier in await self.desk.run(EARLIER_DELIVERY, **where):
            return f"{TURN}: event {earlier['event_id']} is {earlier['status']} for this handler"
        kind = delivery["handler"], event["event_type"], event["event_version"]
        if reason := why_not([relay.abilities for relay in self.live], *kind):
            return f"a relay: {reason}"
        return PAUSED if is_paused else self._for_time(delivery)

    def _for_time(self, delivery: Mapping[str, Any]) -> str:
        if delivery["available_at"] > self.now:
            what = "its next attempt" if delivery["attempts"] else "its time"
            return f"{what}, {delivery['available_at']:%Y-%m-%d %H:%M:%S %Z}"
        return "the next claim"

    def holder(self, delivery: Mapping[str, Any]) -> str | None:
        """Say who has a delivery in hand."""
        if delivery["lease_relay"] is None:
            return None
        for relay in self.found:
            if (relay.id, relay.epoch) == (delivery["lease_relay"], delivery["lease_epoch"]):
                return f"{relay.host}, process {relay.process_id}" + (
                    "" if relay.live else ", whose lease has run out"
                )
        return "a relay that is gone: a live one takes it over"
