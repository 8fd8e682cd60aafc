"""The outbox: domain events as rows, written in the transaction of the change they tell of (C1-C10, R6).

`session` and `transaction` are the sessions that capture: at each flush `capture` finds which events the rows that
are written now have, by the versions before and after, and `outgoing` writes them. `mapping` and `declared` make
aggregates of classes, `instrument` has them speak when they are stale. `receipts` and `atomic` let a handler's effect
happen once. `wake_up` tells relays of a commit. `tables`, `relay_tables` and `log_tables` are the schema, `migrator`
brings a database to it; every statement stands by name in `sql`, is sent by an `own_connection` where it is not a
session's, and gives a `logged_event` back. `sqlalchemy_inside` has all that is used of SQLAlchemy and not promised by
it.

Applications call what is listed here; `database`, `relay` and `operations` the rest.

It may import the kernel, `postgres`, settings and errors; nothing of brokers, relays or contexts.
"""

import outbox_kernel.infrastructure.outbox.relay_tables  # noqa: F401 - completes the metadata
from outbox_kernel.infrastructure.errors import MappingRefused
from outbox_kernel.infrastructure.outbox.declared import MappedAggregate
from outbox_kernel.infrastructure.outbox.dispatcher import OutboxEventDispatcher, OutboxMiddleware
from outbox_kernel.infrastructure.outbox.install import install_capture
from outbox_kernel.infrastructure.outbox.mapping import aggregate_columns, map_aggregate
from outbox_kernel.infrastructure.outbox.record import OutboxRecord, map_outbox_table
from outbox_kernel.infrastructure.outbox.session import bus_of
from outbox_kernel.infrastructure.outbox.tables import outbox_metadata

__all__ = [
    "MappedAggregate",
    "MappingRefused",
    "OutboxEventDispatcher",
    "OutboxMiddleware",
    "OutboxRecord",
    "aggregate_columns",
    "bus_of",
    "install_capture",
    "map_aggregate",
    "map_outbox_table",
    "outbox_metadata",
]
