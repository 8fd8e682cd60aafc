"""What a handler's run leaves without a commit: said in the relay's log, with the handler and its event (C8, R6).

Such a run has ended well, so its event counts as delivered; what it did is gone, and only this line tells.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.outbox.receipts import current_run
from outbox_kernel.infrastructure.outbox.session import CapturedSession
from outbox_kernel.kernel import watching

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from outbox_kernel.infrastructure.outbox.receipts import HandlerRun

_log = logging.getLogger("outbox.relay")

# A handler that forgets does so for every event.
_told: set[str] = set()


def tell_uncommitted(session: Session) -> None:
    """Say once of a handler that the session of its run is closed with what nobody has committed."""
    run = current_run()
    if run is None or run.handler in _told or not isinstance(session, CapturedSession):
        return
    events = session.uncommitted_events()
    if not (events or session.has_uncommitted_changes()):
        return
    _told.add(run.handler)
    lost = f"its changes and these events are gone: {', '.join(events)}" if events else "its changes are gone"
    _log.warning(
        "handler %s returned from event %s without a commit of the session it was given, so %s; end it with `await "
        "session.commit()`, or with `await session.rollback()` where that is meant",
        *(run.handler, run.event_id, lost),
        extra={"action": "handler.uncommitted", **_about(run)},
    )


def tell_in_log(sentence: str, place: str) -> bool:
    """Say of a unit of work in a relay's run what elsewhere is a warning of Python's."""
    run = current_run()
    if run is None or run.terms.relay is None:
        return False
    _log.warning(
        "handler %s, event %s: %s (%s)",
        *(run.handler, run.event_id, sentence, place),
        extra={"action": "handler.uncommitted", **_about(run)},
    )
    return True


def _about(run: HandlerRun) -> dict[str, object]:
    return {"handler": run.handler, "event_id": str(run.event_id)}


watching.tell_elsewhere = tell_in_log
