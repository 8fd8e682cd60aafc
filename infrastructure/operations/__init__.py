"""What an operator may ask and do, as functions over one connection; the `outbox` command only prints it."""

from infrastructure.operations.desk import Desk, desk
from infrastructure.operations.selection import AggregateKey, Selection

__all__ = ["AggregateKey", "Desk", "Selection", "desk"]
