"""The outbox: domain events as rows, written in the transaction of the change they tell of."""

import infrastructure.outbox.relay_tables  # noqa: F401 - completes the metadata
from infrastructure.outbox.dispatcher import OutboxEventDispatcher, OutboxMiddleware
from infrastructure.outbox.install import install_capture
from infrastructure.outbox.mapping import MappingRefused, aggregate_columns, map_aggregate
from infrastructure.outbox.record import OutboxRecord, map_outbox_table
from infrastructure.outbox.session import bus_of
from infrastructure.outbox.tables import outbox_metadata

__all__ = [
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
