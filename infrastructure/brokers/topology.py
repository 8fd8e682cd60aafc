"""Topology as plain data: who publishes what where, and the queues that read it (T1, T2).

A context declares its own in a room named `topology`, as `PUBLISHERS` and `QUEUES`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, get_args

import attrs

from outbox_kernel.infrastructure.brokers.limits import NAME_BYTES_MAX
from outbox_kernel.infrastructure.errors import TopologyInvalid
from outbox_kernel.kernel.matching import matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEAD_LETTER_EXCHANGE = "messaging.dlx"
DEAD_LETTER_QUEUE = "messaging.dlq"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
# Event types as subscriptions name them; what a queue is bound by is the broker's own language.
_PATTERN = re.compile(r"[A-Za-z0-9_.\-*]+")
_BINDING = re.compile(r"(?:[A-Za-z0-9_\-]+|\*|#)(?:\.(?:[A-Za-z0-9_\-]+|\*|#))*")

Sensitive = Literal["clear", "mask", "omit"]

# What a broker keeps for itself.
RESERVED = "amq."


def _named(kind: str) -> Any:
    def check(_: object, __: attrs.Attribute[str], name: str | None) -> None:
        if name is None:
            return
        if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name.encode()) > NAME_BYTES_MAX:
            raise TopologyInvalid(
                f"{kind} {name!r} cannot be named so: take letters, digits, dots, dashes and underscores, "
                f"{NAME_BYTES_MAX} at the most"
            )
        if name.startswith(RESERVED) and kind != "publisher":
            raise TopologyInvalid(
                f"{kind} {name!r} cannot be named so: the broker keeps names that begin with {RESERVED} for itself"
            )

    return check


def _each(kind: str, form: re.Pattern[str], remedy: str) -> Any:
    def check(_: object, __: attrs.Attribute[tuple[str, ...]], found: tuple[str, ...]) -> None:
        wrong = [each for each in found if not isinstance(each, str) or not form.fullmatch(each)]
        if not found or wrong:
            raise TopologyInvalid(f"{kind} {wrong[0] if wrong else found!r} matches nothing: {remedy}")

    return check


def _said(publisher: Publisher, attribute: attrs.Attribute[bool], found: object) -> None:
    if not isinstance(found, bool):
        raise TopologyInvalid(
            f"publisher {publisher.name!r} has {attribute.name}={found!r}: give True or False"
        )


def _told(publisher: Publisher, _: object, found: object) -> None:
    if found not in get_args(Sensitive):
        raise TopologyInvalid(
            f"publisher {publisher.name!r} has sensitive={found!r}: give 'clear', 'mask' or 'omit'"
        )


def _texts(found: Iterable[str]) -> tuple[str, ...]:
    return (found,) if isinstance(found, str) else tuple(found)


@attrs.frozen
class Publisher:
    """Sends events of these types to a topic exchange; without an exchange, to that of the settings."""

    name: str = attrs.field(validator=_named("publisher"))
    patterns: tuple[str, ...] = attrs.field(
        converter=_texts,
        validator=_each("event-type pattern", _PATTERN, "write event types, with * for any part"),
    )
    exchange: str | None = attrs.field(default=None, validator=_named("exchange"), kw_only=True)
    mandatory: bool = attrs.field(default=True, validator=_said, kw_only=True)
    """Whether an event that no queue is bound for is refused; if not, it counts as delivered."""
    sensitive: Sensitive = attrs.field(default="clear", validator=_told, kw_only=True)
    """What becomes of fields declared `sensitive()` in what is sent: as handlers see them, masked, or left out."""

    def selects(self, event_type: str) -> bool:
        """Whether it is for events of this type."""
        return matches(event_type, self.patterns)


@attrs.frozen
class Queue:
    """A queue that keeps what an exchange routes to it; an optional one is declared only when asked for."""

    name: str = attrs.field(validator=_named("queue"))
    bindings: tuple[str, ...] = attrs.field(
        converter=_texts,
        validator=_each("binding key", _BINDING, "write words with dots between, * for one word, # for any"),
    )
    exchange: str | None = attrs.field(default=None, validator=_named("exchange"), kw_only=True)
    optional: bool = attrs.field(default=False, kw_only=True)
    arguments: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True)
    """What the broker is told beside, such as x-max-length; what this product needs is added."""


@attrs.frozen
class Topology:
    """All that the contexts of an application declare, with every exchange named."""

    publishers: tuple[Publisher, ...] = ()
    queues: tuple[Queue, ...] = ()
    dead_letter_exchange: str = DEAD_LETTER_EXCHANGE
    dead_letter_queue: str = DEAD_LETTER_QUEUE

    @classmethod
    def of(
        cls, publishers: Iterable[Publisher], queues: Iterable[Queue], *, exchange: str, **names: str
    ) -> Topology:
        """Put it together; `exchange` is that of whoever names none."""
        found = cls(
            tuple(attrs.evolve(each, exchange=each.exchange or exchange) for each in publishers),
            tuple(attrs.evolve(each, exchange=each.exchange or exchange) for each in queues),
            **names,
        )
        for kind, every in (("publisher", found.publishers), ("queue", found.queues)):
            names_ = [each.name for each in every]
            if twice := next((name for name in names_ if names_.count(name) > 1), None):
                raise TopologyInvalid(f"{kind} {twice!r} is declared twice: give one of them another name")
        found._check_dead_letters(exchange)
        return found

    def _check_dead_letters(self, exchange: str) -> None:
        """Refuse to mix what is published with what nobody could store."""
        if self.dead_letter_exchange in (exchange, *self.exchanges):
            raise TopologyInvalid(
                f"exchange {self.dead_letter_exchange!r} is that of the dead letters: name another one in "
                "RABBITMQ_EXCHANGE, or in the publisher or queue that names it"
            )
        if self.queue(self.dead_letter_queue) is not None:
            raise TopologyInvalid(
                f"queue {self.dead_letter_queue!r} is that of the dead letters: give the declared one another name"
            )

    @property
    def exchanges(self) -> tuple[str, ...]:
        """Every exchange that is published to or read from, without repetition."""
        named = [each.exchange for each in self.publishers] + [each.exchange for each in self.queues]
        return tuple(dict.fromkeys(str(each) for each in named))

    def queue(self, name: str) -> Queue | None:
        """Return a queue by its name, optional ones too."""
        return next((each for each in self.queues if each.name == name), None)

    def part_of(self, publisher: Publisher) -> Topology:
        """Return what one publisher needs: its exchange, and the queues that read it."""
        queues = tuple(each for each in self.queues if each.exchange == publisher.exchange)
        return attrs.evolve(self, publishers=(publisher,), queues=queues)

    def reading(self, queues: Iterable[str]) -> Topology:
        """Return what consuming these needs; asked for by name, an optional one is optional no more."""
        wanted = {*queues}
        if self.dead_letter_queue in wanted:
            raise TopologyInvalid(
                f"queue {self.dead_letter_queue!r} holds the dead letters, which nobody could store: "
                "`outbox dead-letters` lists them and sends them back"
            )
        found = tuple(attrs.evolve(each, optional=False) for each in self.queues if each.name in wanted)
        return attrs.evolve(self, publishers=(), queues=found)

    def with_optional(self, names: Iterable[str]) -> Topology:
        """Return it with these optional queues wanted."""
        wanted = {*names}
        if unknown := sorted(wanted - {each.name for each in self.queues}):
            known = ", ".join(each.name for each in self.queues) or "none"
            raise TopologyInvalid(f"no context declares a queue {unknown[0]!r}: there is {known}")
        queues = (attrs.evolve(each, optional=False) if each.name in wanted else each for each in self.queues)
        return attrs.evolve(self, queues=tuple(queues))


def routes(binding: str, routing_key: str) -> bool:
    """Whether a topic exchange routes a key by a binding: * is one word, # any number of them."""
    return _routes(binding.split("."), routing_key.split("."))


def _routes(binding: list[str], words: list[str]) -> bool:
    if not binding:
        return not words
    head, *rest = binding
    if head == "#":
        return any(_routes(rest, words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and head in ("*", words[0]) and _routes(rest, words[1:])
