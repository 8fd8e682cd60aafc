"""Which sessions capture can write through: those of two drivers for PostgreSQL, in transactions (C9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import CannotCapture

if TYPE_CHECKING:
    from sqlalchemy import Dialect

DRIVERS = ("asyncpg", "psycopg")


def check_driver(dialect: Dialect) -> None:
    """Refuse a session or engine whose driver capture does not speak."""
    if dialect.driver not in DRIVERS:
        raise CannotCapture(
            f"capture writes through asyncpg or psycopg 3, and this session uses {dialect.driver}; create its engine "
            "from a postgresql+asyncpg:// or postgresql+psycopg:// URL"
        )
