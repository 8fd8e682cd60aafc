"""The relay: reads the log by cursors, delivers every event in order, whatever happens (R1-R12, R16, R17).

docs/life-of-an-event.md draws it. `relay` is what others see: it works shift after shift, each under one lease, and
`starting` assembles a `Shift` of parts that live no longer than it. `reading` reads the log for `Reader`s, each at a
`Place`; a `Subscriber` takes what was read for one handler or publisher, and its `Workers` go through it, one
aggregate at a time. `progress` writes places down, with `deliveries` for what did not succeed. `ownership` takes and
gives cursors, `takeover` frees what the dead held. What bounds all this stands in `limits`.

The object `Outbox` and the commands call it; handlers never do.

It may import the kernel, `postgres`, the statements and receipts of `outbox`, the ports of `brokers`, and how
handlers are made (`calling`, `scopes`).
"""

from outbox_kernel.infrastructure.relay.relay import OutboxRelay
from outbox_kernel.infrastructure.relay.settings import RelaySettings

__all__ = ["OutboxRelay", "RelaySettings"]
