"""Handlers at once, in this process, for events that may be lost (K6)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.calling import caller
from outbox_kernel.infrastructure.errors import NoStoreToWaitIn
from outbox_kernel.infrastructure.limits import GRACE_SECONDS
from outbox_kernel.infrastructure.outbox.atomic import OneTransaction
from outbox_kernel.infrastructure.outbox.receipts import HandlerRun, Terms
from outbox_kernel.infrastructure.outbox.sealing.scrubbing import secrets_of, traceback_of
from outbox_kernel.kernel.catalogue import event_type_of
from outbox_kernel.kernel.clock import now
from outbox_kernel.kernel.context import Delivery, current_headers, handling
from outbox_kernel.kernel.handlers import get_handlers_for
from outbox_kernel.kernel.stored import StoredEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from outbox_kernel.infrastructure.scopes import AnyContainer
    from outbox_kernel.kernel.events import DomainEvent
    from outbox_kernel.kernel.handlers import HandlerRegistration

_log = logging.getLogger("outbox.in_process")


class InProcessEventDispatcher:
    """Runs each event's handlers concurrently, each in a scope of its own: no row, no receipt, no retry.

    A handler that fails is logged and counted, and harms nobody else. Handlers of a queue are left out. An event that
    is for later by its `not_before` is refused, and nothing handled: there is no store for it to wait in.
    """

    def __init__(self, container: AnyContainer) -> None:
        self._container = container
        self.handled = 0
        self.failed = 0

    async def dispatch(self, events: Iterable[DomainEvent]) -> None:
        """Run the handlers of all events and return when the last has ended; none without handlers is missed."""
        events = [*events]
        for event in events:
            _refuse_to_wait(event)
        given_up = asyncio.Event()
        runs = [
            asyncio.create_task(self._run(registration, event, given_up))
            for event in events
            for registration in get_handlers_for(type(event))
            if registration.queue is None
        ]
        try:
            if runs:
                await asyncio.wait(runs)
        except asyncio.CancelledError:
            given_up.set()
            for run in runs:
                run.cancel()
            await asyncio.wait(runs)
            raise

    async def _run(
        self, registration: HandlerRegistration, event: DomainEvent, given_up: asyncio.Event
    ) -> None:
        # What it commits is its own: not the effect of a relay's handler that may be dispatching this.
        delivery = Delivery(event.event_id, 0, 1, dict(current_headers()))
        run = None
        if registration.atomic:
            run = HandlerRun(delivery, Terms(registration.name))
        whole = (
            nullcontext()
            if run is None
            else OneTransaction(run, registration.timeout_seconds + GRACE_SECONDS)
        )
        try:
            with handling(run or delivery):
                given = _given(registration, event, delivery)
                async with asyncio.timeout(registration.timeout_seconds), whole:
                    await caller(registration, self._container)(
                        given if registration.batch is None else [given]
                    )
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            if given_up.is_set():
                return  # whoever dispatches is cancelled, which is no failure of the handler's
            # The one place that only logs: these events may be lost.
            self.failed += 1
            _log.error(
                "handler %s failed over event %s; this dispatcher does not retry",
                *(registration.name, event.event_id),
                extra={
                    "action": "dispatch.failed",
                    "handler": registration.name,
                    "event_id": str(event.event_id),
                },
                exc_info=traceback_of(error, secrets_of(event)),
            )
        else:
            self.handled += 1


def _given(
    registration: HandlerRegistration, event: DomainEvent, delivery: Delivery
) -> DomainEvent | StoredEvent:
    """Return an event as the handler gets it: of a class that it is for, else as it would be stored."""
    if type(event) in registration.events:
        return event
    return StoredEvent.of(event, headers=delivery.headers)


def _refuse_to_wait(event: DomainEvent) -> None:
    moment = event.stamp.not_before
    if moment is not None and moment > now():
        raise NoStoreToWaitIn(event_type_of(type(event)).name, moment)
