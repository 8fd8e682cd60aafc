"""The actions, each a form: by its path below `/do`, the function that does it, and the right that it takes.

An action opens a desk, has `operations` do it, tells the log who did what and what it came to, and leads to a page that
tells the operator. What cannot be done is told there, too, in the operation's own sentence.

`mending` retries and skips, `subscribing` pauses, resumes, rewinds and retires, `purging` purges. `theming` changes
nothing but how pages look. `doing` is the one way that they all go.

`app` alone calls them, once it is known who asks and that the form is one of ours.

It may import what stands around it and `operations`, and no page but how an address means things.
"""

from outbox_kernel.infrastructure.dashboard.actions import mending, purging, subscribing, theming
from outbox_kernel.infrastructure.dashboard.operator import Right

ACTIONS = {
    "/retry": (mending.retry, Right.RETRY),
    "/skip": (mending.skip, Right.SKIP),
    "/pause": (subscribing.pause, Right.PAUSE),
    "/resume": (subscribing.resume, Right.PAUSE),
    "/rewind": (subscribing.rewind, Right.RETRY),
    "/retire": (subscribing.retire, Right.PURGE),
    "/purge": (purging.purge, Right.PURGE),
    "/theme": (theming.theme, Right.VIEW),
}

__all__ = ["ACTIONS"]
