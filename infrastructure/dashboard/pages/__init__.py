"""The pages, each a plain GET: by its path, the function that answers it, and the right that it takes.

A page opens a desk to look from, asks `operations`, and gives what it was told to a template. It decides nothing: an
address that says more than there is gets the page of that. `app` alone calls them, once it is known who asks.

It may import what stands around it and `operations`; its imports are no page of another subject's.
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
