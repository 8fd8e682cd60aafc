"""The pages, each a plain GET: by its path, the function that answers it, and the right that it takes.

A page opens a desk to look from, asks `operations`, and gives what it was told to a template. It decides nothing: an
address that says more than there is gets the page of that.

`overview` is where an operator begins, `events`, `dead_letters`, `subscriptions`, `aggregates` and `relays` show one
subject each. `confirming` asks before an action, `streaming` sends what changes. `meant` reads from an address what
somebody means, `finding` leads to what somebody has typed.

`app` calls them, once it is known who asks; actions call `meant` and `confirming` to read an address as a page does.

It may import what stands around it, `operations`, and the words of `outbox` and `relay` for states; no SQL, no broker
and no driver.
"""

from outbox_kernel.infrastructure.dashboard.operator import Right
from outbox_kernel.infrastructure.dashboard.pages import (
    aggregates,
    confirming,
    dead_letters,
    events,
    finding,
    meanings,
    overview,
    relays,
    streaming,
    subscriptions,
)

PAGES = {
    "/": (overview.page, Right.VIEW),
    "/events": (events.search, Right.VIEW),
    "/events/{event}": (events.story, Right.VIEW),
    "/aggregate": (aggregates.page, Right.VIEW),
    "/subscriptions": (subscriptions.every, Right.VIEW),
    "/subscription": (subscriptions.one, Right.VIEW),
    "/dead-letters": (dead_letters.groups, Right.VIEW),
    "/dead-letters/of": (dead_letters.letters, Right.VIEW),
    "/relays": (relays.page, Right.VIEW),
    "/words": (meanings.page, Right.VIEW),
    "/find": (finding.find, Right.VIEW),
    "/confirm/retry": (confirming.retry, Right.RETRY),
    "/confirm/skip": (confirming.skip, Right.SKIP),
    "/confirm/rewind": (confirming.rewind, Right.RETRY),
    "/confirm/retire": (confirming.retire, Right.PURGE),
    "/confirm/purge": (confirming.purge, Right.PURGE),
    "/live": (streaming.live, Right.VIEW),
}

__all__ = ["PAGES"]
