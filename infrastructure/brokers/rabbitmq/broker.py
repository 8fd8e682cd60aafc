"""RabbitMQ at an address: its outlets and inlets, and what operators ask of it (T0, O1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

from outbox_kernel.infrastructure.brokers.rabbitmq import dead_letters, declaring
from outbox_kernel.infrastructure.brokers.rabbitmq.burying import Burial
from outbox_kernel.infrastructure.brokers.rabbitmq.inlet import RabbitInlet
from outbox_kernel.infrastructure.brokers.rabbitmq.limits import LINK_NAME_CHARACTERS_MAX
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.brokers.rabbitmq.outlet import RabbitOutlet

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from outbox_kernel.infrastructure.brokers.operated import Choice, Finding, Letter
    from outbox_kernel.infrastructure.brokers.rabbitmq.address import Address
    from outbox_kernel.infrastructure.brokers.topology import Publisher, Topology


@attrs.frozen
class RabbitBroker:
    """Each outlet and inlet has connections of its own: what one fails over stops no other."""

    address: Address
    name: ClassVar = "RabbitMQ"

    def __str__(self) -> str:
        """Say where it is."""
        return str(self.address)

    def outlet(self, publisher: Publisher, topology: Topology) -> RabbitOutlet:
        """Return the outlet of a publisher."""
        return RabbitOutlet(self._link(f"publisher {publisher.name}"), publisher, topology)

    def inlet(self, queue: str, topology: Topology, *, prefetch: int) -> RabbitInlet:
        """Return an inlet of a queue."""
        burial = Burial(queue, topology.reading([]), self._link(f"dead letters of {queue}"))
        return RabbitInlet(
            queue, topology.reading([queue]), prefetch, self._link(f"consumer {queue}"), burial
        )

    async def survey(self, topology: Topology, *, apply: bool) -> list[Finding]:
        """Look at everything a topology is made of, and with `apply` make what is missing."""
        async with self._link("topology") as link:
            return await declaring.survey(link, topology, apply=apply)

    async def examine(self, topology: Topology, *, seconds_max: float) -> tuple[list[Finding], int | None]:
        """Look, and count the dead letters."""
        async with self._link("doctor") as link, link.step(seconds_max):
            found = await declaring.survey(link, topology, apply=False)
            return found, await declaring.number_in(link, topology.dead_letter_queue)

    async def listed(self, queue: str, *, most: int, choice: Choice) -> tuple[list[Letter], int]:
        """Read dead letters."""
        return await dead_letters.listed(self.address, queue, most=most, choice=choice)

    async def replayed(
        self,
        queue: str,
        *,
        choice: Choice,
        declared: Container[str],
        to: str | None,
        begin: Callable[[int], Callable[[int], None]],
    ) -> int:
        """Send dead letters back."""
        return await dead_letters.replayed(
            self.address, queue, choice=choice, declared=declared, to=to, begin=begin
        )

    def _link(self, name: str) -> Link:
        return Link(self.address, f"outbox {name}"[:LINK_NAME_CHARACTERS_MAX])
