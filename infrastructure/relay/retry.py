"""Retry: whether what did not succeed is tried again, and when, or is dead; and what is told of it (R7, R9)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.infrastructure.outbox.delivery import storable
from outbox_kernel.infrastructure.outbox.sealing.scrubbing import scrubbed, traceback_of
from outbox_kernel.infrastructure.relay.limits import DELAY_SECONDS_MAX
from outbox_kernel.kernel.errors import Reject, RetryAfter, SecondCommit

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
    from outbox_kernel.infrastructure.relay.run import Run
    from outbox_kernel.infrastructure.relay.subscription import CarriedAny, CarriedPublisher

_log = logging.getLogger("outbox.relay")

UNREADABLE = (
    "it cannot be read: a moment out of range, or a payload or headers that are no object; mend the row and retry it, "
    "or skip it"
)


@attrs.frozen
class Verdict:
    """How a run ended: done, waiting for another attempt, or dead."""

    status: str
    attempts: int
    delay_seconds: float = 0.0
    error_message: str | None = None


DONE, WAITING, LEASED = Verdict("done", 0), Verdict("waiting", 0), Verdict("leased", 0)
SPLIT = "split"
"""The status of a batch that has failed: which event is at fault is to be found out."""


def failed_after_commit(run: Run, error: BaseException) -> Verdict:
    """Count a run as a success whose effect had committed before it failed."""
    _log.error(
        "handler %s failed over event %s %s after its effect had committed, which counts as success",
        *_named(run),
        extra={"action": "handler.failed_after_commit", **_about(run)},
        exc_info=traceback_of(error, run.secrets()),
    )
    return DONE if run.is_of_several else Verdict("done", run.attempts, error_message=_told(run, error))


def handled_before(run: Run, error: BaseException) -> Verdict:
    """Count a run as a success of whose effect there is a receipt by an earlier one."""
    _log.info(
        "handler %s failed over event %s %s, and has had its effect of it before, which counts as success: %s",
        *(*_named(run), _told(run, error).partition("\n")[0]),
        extra={"action": "handler.handled_before", **_about(run)},
    )
    return DONE


def failed(run: Run, error: BaseException) -> Verdict:
    """Decide about a run that has failed."""
    if run.is_of_several and not isinstance(error, SecondCommit):
        return Verdict(SPLIT, 0, 0.0, _told(run, error))
    attempts = run.attempts + 1
    delay = _delay(run, error, attempts)
    about = {**_about(run), "attempts": attempts}
    # What a handler says on purpose has its reason in its words, and nothing to look for in a traceback.
    meant = isinstance(error, Reject | RetryAfter)
    reason, trace = _told(run, error), None if meant else traceback_of(error, run.secrets())
    if delay is None:
        _log.critical(
            "handler %s is dead for event %s %s: retry or skip it: %s",
            *(*_named(run), reason.partition("\n")[0]),
            extra={"action": "handler.dead", **about},
            exc_info=trace,
        )
        return Verdict("dead", attempts, 0.0, reason)
    _log.warning(
        "handler %s failed over event %s %s and is tried again in %g s: %s",
        *(*_named(run), round(delay, 2), reason.partition("\n")[0]),
        extra={"action": "handler.failed", **about, "delay_seconds": delay},
        exc_info=trace,
    )
    return Verdict("waiting", attempts, delay, reason)


def _delay(run: Run, error: BaseException, attempts: int) -> float | None:
    if isinstance(error, Reject | SecondCommit):
        return None
    delay = run.carried.schedule.delay_after(attempts)
    if delay is not None and isinstance(error, RetryAfter):
        delay = error.seconds
    return None if delay is None else min(float(delay), DELAY_SECONDS_MAX)


def _told(run: Run, error: BaseException) -> str:
    try:
        words = str(error)
    except Exception as broken:  # noqa: BLE001 - an error's words are the handler's code too
        words = f"(its own text failed with {type(broken).__name__})"
    return storable(f"{type(error).__name__}: {scrubbed(words, run.secrets())}")


def refused(publisher: CarriedPublisher, row: LoggedEvent, attempts: int, reason: str) -> Verdict:
    """Decide about an event that a broker does not take."""
    attempts, reason = attempts + 1, storable(scrubbed(reason, row.secrets))
    delay = publisher.schedule.delay_after(attempts)
    about = {"publisher": publisher.name, **about_event(row), "attempts": attempts}
    if delay is None:
        _log.critical(
            "publisher %s is dead for event %s %s: retry or skip it: %s",
            *(publisher.name, row.event_type, row.event_id, reason),
            extra={"action": "publisher.event.dead", **about},
        )
        return Verdict("dead", attempts, 0.0, reason)
    _log.warning(
        "publisher %s: the broker refused event %s %s, which is tried again in %g s: %s",
        *(publisher.name, row.event_type, row.event_id, round(delay, 2), reason),
        extra={"action": "publisher.event.refused", **about, "delay_seconds": delay},
    )
    return Verdict("waiting", attempts, delay, reason)


def buried(carried: CarriedAny, row: LoggedEvent, attempts: int) -> Verdict:
    """Decide about an event that cannot be read."""
    _log.critical(
        "%s %s is dead for event %s %s: %s",
        *(carried.kind, carried.name, row.event_type, row.event_id, UNREADABLE),
        extra={"action": "delivery.unreadable", carried.kind: carried.name, **about_event(row)},
    )
    return Verdict("dead", attempts + 1, 0.0, UNREADABLE)


def _named(run: Run) -> tuple[str, str, UUID]:
    """Return what a line of the log names in its words: an application's own log may show nothing else of it."""
    return run.carried.name, run.row.event_type, run.row.event_id


def _about(run: Run) -> dict[str, object]:
    return {"handler": run.carried.name, **about_event(run.row)}


def about_event(row: LoggedEvent) -> dict[str, object]:
    """Return what a line tells of an event: ids and names, nothing of what it says."""
    aggregate_id = row.aggregate_key or row.aggregate_id
    return {
        "event_id": str(row.event_id),
        "event_type": row.event_type,
        "position": row.position,
        "aggregate_type": row.aggregate_type,
        "aggregate_id": None if aggregate_id is None else str(aggregate_id),
    }
