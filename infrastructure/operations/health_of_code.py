"""Doctor's look at this installation: what a relay started here would stumble over (R14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.brokers.discovery import discover_topology, undeclared_queues
from outbox_kernel.infrastructure.discovery import context_packages
from outbox_kernel.infrastructure.errors import BadContext, InfrastructureError, ProjectElsewhere
from outbox_kernel.infrastructure.operations.verdicts import Check, fail, halves, ok, warn
from outbox_kernel.infrastructure.relay.subscription import check_names
from outbox_kernel.kernel import check_upcasters
from outbox_kernel.kernel.errors import KernelError, MissingUpcaster
from outbox_kernel.kernel.handlers import registered_handlers, unknown_types

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from outbox_kernel.infrastructure.relay import RelaySettings
    from outbox_kernel.infrastructure.settings import Settings
    from outbox_kernel.kernel.handlers import HandlerRegistration

    FindHandlers = Callable[[Settings, RelaySettings], Awaitable[Sequence[HandlerRegistration]]]


async def examine_code(settings: Settings, relay_settings: RelaySettings, find: FindHandlers) -> list[Check]:
    """Check handlers and upcasters as a relay does before it starts."""
    handlers = await _handlers(settings, relay_settings, find)
    found = [] if handlers.state == "fail" else [*_event_types(), *_topology(settings)]
    return [handlers, *found, _upcasters(), _code_version(relay_settings)]


async def _handlers(settings: Settings, relay_settings: RelaySettings, find: FindHandlers) -> Check:
    try:
        found = await find(settings, relay_settings)
    except (BadContext, ProjectElsewhere) as error:
        return fail("handlers", *halves(error))
    except KernelError as error:
        return fail("handlers", str(error), "mend it: a relay with this code does not start")
    if not found:
        return warn(
            "handlers",
            f"no handler in {', '.join(context_packages(settings)) or 'any context'}",
            "name the packages of the contexts in OUTBOX_CONTEXTS, or run this in the application's folder",
        )
    return ok("handlers", f"{len(found)} can be made: {', '.join(map(_shown, found))}")


def _shown(handler: HandlerRegistration) -> str:
    return handler.name if handler.queue is None else f"{handler.name} (queue {handler.queue})"


def _event_types() -> list[Check]:
    """Name the patterns that no event known here has: one that is misspelt is due for nothing, for good."""
    return [
        warn("event types", *sentence.split(": ", 1)) for _, sentence in unknown_types(registered_handlers())
    ]


def _topology(settings: Settings) -> list[Check]:
    """Hold the handlers against what the contexts declare: names, and the queues that handlers are for."""
    found = registered_handlers()
    try:
        check_names(found, discover_topology(settings).publishers)
        undeclared = undeclared_queues(settings, found)
    except InfrastructureError as error:
        return [fail("topology", *halves(error))]
    return [warn("queues", *sentence.split(": ", 1)) for sentence in undeclared]


def _upcasters() -> Check:
    try:
        check_upcasters()
    except MissingUpcaster as error:
        return fail("upcasters", str(error), "write it: a relay with this code does not start")
    return ok("upcasters", "every stored version has its way up")


def _code_version(relay_settings: RelaySettings) -> Check:
    if relay_settings.code_version == "unknown":
        return warn(
            "code version",
            "relays do not say which version they run",
            "set OUTBOX_CODE_VERSION, such as to the commit, so that `outbox status` can tell them apart",
        )
    return ok("code version", relay_settings.code_version)
