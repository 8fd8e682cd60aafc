"""What the options of a handler may be (K5): each that means nothing is refused in a sentence."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.errors import DefinitionError
from outbox_kernel.kernel.rates import interval_seconds
from outbox_kernel.kernel.retry import RetrySchedule, is_number

if TYPE_CHECKING:
    from outbox_kernel.kernel.handlers import HandlerRegistration


def check_options(registration: HandlerRegistration) -> None:
    """Refuse a registration of which an option means nothing."""
    _check_names(registration)
    if not is_number(registration.timeout_seconds) or not 0 < registration.timeout_seconds < float("inf"):
        raise _refused(registration, "timeout", registration.timeout_seconds, "give seconds above zero")
    if registration.retry is not None and not isinstance(registration.retry, RetrySchedule):
        raise _refused(registration, "retry", registration.retry, "give a RetrySchedule")
    if registration.ordered not in (True, False):
        raise _refused(registration, "ordered", registration.ordered, "give True or False")
    if registration.on_dead not in ("park", "continue"):
        raise _refused(registration, "on_dead", registration.on_dead, "choose 'park' or 'continue'")
    if registration.start not in ("now", "beginning"):
        raise _refused(registration, "start", registration.start, "choose 'now' or 'beginning'")
    for option in ("batch", "concurrency"):
        value = getattr(registration, option)
        if value is not None and not _is_count(value):
            raise _refused(registration, option, value, "give a whole number, one or more")
    if registration.rate is not None and interval_seconds(registration.rate) is None:
        remedy = "say how many in how long, as '100/s', '30/min' or '500/h'"
        raise _refused(registration, "rate", registration.rate, remedy)
    _check_atomic(registration)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check_names(registration: HandlerRegistration) -> None:
    queue = registration.queue
    catalogue.check_wire_name("handler", registration.name)
    if registration.renamed_from is not None:
        catalogue.check_wire_name("handler", registration.renamed_from)
    if registration.renamed_from == registration.name:
        raise DefinitionError(f"handler {registration.name!r} is renamed from itself; drop renamed_from")
    if queue is not None and not (isinstance(queue, str) and queue.strip()):
        raise _refused(registration, "queue", queue, "give the name of a queue, or leave it out")


def _check_atomic(registration: HandlerRegistration) -> None:
    if registration.atomic not in (True, False):
        raise _refused(registration, "atomic", registration.atomic, "give True or False")
    is_class = isinstance(registration.handler, type)
    if registration.atomic and not (is_class or inspect.iscoroutinefunction(registration.handler)):
        raise DefinitionError(
            f"handler {registration.name!r} has atomic=True and is not async: the sessions of a thread cannot share a "
            "transaction; make it `async def`, or let it commit once and drop atomic=True"
        )


def _refused(registration: HandlerRegistration, option: str, value: object, remedy: str) -> DefinitionError:
    return DefinitionError(f"handler {registration.name!r} has {option}={value!r}; {remedy}")
