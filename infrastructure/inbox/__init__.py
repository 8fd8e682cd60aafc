"""The inbox: what arrives from brokers is stored in our own log, and a relay in this process does the rest (T3).

`Consumer` empties queues, each through an inlet and a `Receiving` of its own, so that what one fails over stops no
other. A `Receiving` opens the inlet, and opens it anew after every loss. Its `Intake` takes batches, each message as
the event that it tells of (`brokers.received`), stores them in one statement (`storing`) and acknowledges after that
commit (`acknowledging`); `Burying` moves what cannot be stored to the dead letters. `troubles` logs what is wrong once,
and keeps it for `status` and `doctor`. What bounds all this stands in `limits`.

`outbox consume` calls it, with a relay that runs the handlers of those queues. Nothing here knows which broker it is:
what it needs is the port `Inlet`, whose suite is tests/conformance/consuming.

It may import the kernel, `postgres`, the ports of `brokers`, the statements of `outbox`, and the relay.
"""
