"""What operators ask of a broker beside its two ports: how its topology stands, and what its dead letters are (O1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import attrs

from outbox_kernel.infrastructure.brokers.port import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from outbox_kernel.infrastructure.brokers.topology import Topology

State = Literal["present", "missing", "made", "bound", "unseen", "conflict", "forbidden"]


@attrs.frozen
class Finding:
    """How a thing of a topology stands at the broker."""

    kind: str
    name: str
    state: State
    detail: str = ""

    @property
    def stands(self) -> bool:
        """Whether it is there, and may be bound."""
        return self.state in ("present", "made")

    @property
    def is_wrong(self) -> bool:
        """Whether somebody has to do something about it."""
        return self.state in ("missing", "conflict", "forbidden")


@attrs.frozen
class Letter:
    """A message among the dead letters."""

    id: str | None
    event_type: str | None
    queue: str | None
    """Where it came from, if that is known."""
    reason: str | None
    since: str | None
    bytes: int

    def __str__(self) -> str:
        """Name it."""
        return f"message {self.id}" if self.id else "a message that has no id"


@attrs.frozen
class Choice:
    """Which letters are meant; all, where nothing is said."""

    id: str | None = None
    queue: str | None = None

    def means(self, letter: Letter) -> bool:
        """Whether this is one of them."""
        return self.id in (None, letter.id) and self.queue in (None, letter.queue)


class OperatedBroker(Broker, Protocol):
    """A broker that operators can ask; its `str` says where it is, without a password."""

    name: ClassVar[str]

    async def survey(self, topology: Topology, /, *, apply: bool) -> list[Finding]:
        """Look at everything a topology is made of, and with `apply` make what is missing."""

    async def examine(self, topology: Topology, /, *, seconds_max: float) -> tuple[list[Finding], int | None]:
        """Look, and count the dead letters, where their queue is ours to see."""

    async def listed(self, queue: str, /, *, most: int, choice: Choice) -> tuple[list[Letter], int]:
        """Read dead letters, the oldest first, and leave them there; say how many were not looked at."""

    async def replayed(
        self,
        queue: str,
        /,
        *,
        choice: Choice,
        declared: Container[str],
        to: str | None,
        begin: Callable[[int], Callable[[int], None]],
    ) -> int:
        """Send dead letters back to where they came from, if that is declared, or to a queue that is named.

        Where one came from is what the broker says, or who buried it; not what it came with. Return how many.
        """
