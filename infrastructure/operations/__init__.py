"""What an operator may ask and decide, as functions over one connection (O1, R14).

`Desk` is one operator's connection with its deadlines. `overview` is what `status` shows, with `abilities`, by which it
knows who can run what; `stories` is what `events`, `show`, `history` and `failed` do, `waits` what each waits for,
`masking` what may be seen of it. `mending`, `replaying`, `subscriptions` and `purging` change something; `selection`
says of which events or deliveries. `health` asks everything that `doctor` asks, a module `health_of_…` a subject. What
they return are frozen objects. Whoever changes something wakes the relays.

The command line and the dashboard call it, and only show it: a rule of what may be done stands here.

It may import the kernel, the statements of `outbox`, the relay's and the consumer's vocabulary, and brokers by their
ports; nothing of HTTP or the command line.
"""

from outbox_kernel.infrastructure.operations.desk import Desk, desk
from outbox_kernel.infrastructure.operations.selection import AggregateKey, Selection

__all__ = ["AggregateKey", "Desk", "Selection", "desk"]
