"""The outbox: domain events as rows, written in the transaction of the change they tell of."""

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
