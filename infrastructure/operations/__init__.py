"""What an operator may ask and do, as functions over one connection; the `outbox` command only prints it."""

from outbox_kernel.infrastructure.operations.desk import Desk, desk
from outbox_kernel.infrastructure.operations.selection import AggregateKey, Selection

__all__ = ["AggregateKey", "Desk", "Selection", "desk"]
