"""What an operator may ask and decide, as functions over one connection (O1, R14).

`Desk` is one operator's connection with its deadlines. `overview` and `subscriptions` are what `status` shows,
`stories` what `events`, `show` and `history` do, `mending`, `replaying` and `purging` what changes something;
`selection` says of which events or deliveries. `health` asks everything that `doctor` asks, a module `health_of_…` a
subject. Whoever changes something wakes the relays.

The command line and, later, the dashboard only show it: a rule of what may be done stands here.

It may import the kernel, the statements of `outbox`, the relay's and the consumer's vocabulary, and brokers by their
ports; nothing of HTTP or the command line.
"""

from outbox_kernel.infrastructure.operations.desk import Desk, desk
from outbox_kernel.infrastructure.operations.selection import AggregateKey, Selection

__all__ = ["AggregateKey", "Desk", "Selection", "desk"]
