"""How many invitations an address is sent: a mailbox is not to be filled by whoever has a family."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from contexts.families.domain.errors import TooManyMails

MAILS_MAX = 3
MAILS_PERIOD = timedelta(hours=1)


def check_mails(mailed: Iterable[datetime], now: datetime) -> None:
    """Raise TooManyMails if an address that was mailed at these moments is not to be mailed now."""
    lately = sorted(moment for moment in mailed if moment > now - MAILS_PERIOD)
    if len(lately) >= MAILS_MAX:
        raise TooManyMails(MAILS_MAX, MAILS_PERIOD, lately[-MAILS_MAX] + MAILS_PERIOD - now)
