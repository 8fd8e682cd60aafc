"""A sample outbox, in which everything is that can be: to look at the dashboard with, and to try it (O2, O3).

`shop` is the story: what a shop's subscriptions are, and what each has delivered, failed with and waits for. `filling`
writes it into an empty outbox, as if a week had passed; `playing` goes on with it, so that pages have something to show
live, and lets what is retried succeed. Nothing is delivered to anybody: there is no handler and no broker behind it.

The command `dev --sample` calls it; the tests of the dashboard and its picture in the README are made of it.

It may import the kernel, the statements of `outbox` and `operations`; nothing of HTTP or the command line.
"""

from outbox_kernel.infrastructure.sample.filling import fill, is_filled
from outbox_kernel.infrastructure.sample.playing import play

__all__ = ["fill", "is_filled", "play"]
