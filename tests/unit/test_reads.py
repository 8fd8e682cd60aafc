"""A statement is taken for a query only where nothing in it may write (R6)."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Integer, cast, func, insert, literal_column, select, text, union
from sqlalchemy.dialects.postgresql import asyncpg

from outbox_kernel.infrastructure.outbox.reads import only_reads
from tests.domain import Wallet, journal, wallets

line = journal.c.line


@pytest.mark.parametrize(
    "statement",
    [
        select(journal),
        select(Wallet).where(wallets.c.owner.in_(["a", "b"]), wallets.c.balance + 1 > 3),
        select(func.count()).select_from(journal),
        select(func.coalesce(func.max(line), "")).group_by(line).having(func.count() > 1),
        select(cast(line, Integer)).where(select(wallets).exists()),
        select(select(line).cte("lines")),
        union(select(line), select(wallets.c.owner)).order_by("line").limit(3),
        text("SELECT 1"),
    ],
)
def test_a_query_only_reads(statement: object) -> None:
    """R6."""
    assert only_reads(_sent(statement))


@pytest.mark.parametrize(
    "statement",
    [
        insert(journal),
        select(journal).with_for_update(),
        select(journal).with_for_update(read=True, skip_locked=True),
        select(func.write_line("x")),
        select(func.bank.lower("x")),
        select(func.nextval("numbers")),
        select(insert(journal).returning(line).cte()),
        select(literal_column("nextval('numbers')")),
        text("SELECT nextval/**/('numbers')"),
        text("SELECT \"nextval\"('numbers')"),
        text("SELECT 1; INSERT INTO bank_journal VALUES ('x')"),
        text("SELECT * INTO lines FROM bank_journal"),
        text("TABLE bank_journal"),
        text("CALL write_line('x')"),
        text("TRUNCATE bank_journal"),
    ],
)
def test_what_may_write_or_lock_is_no_query(statement: object) -> None:
    """R6."""
    assert not only_reads(_sent(statement))


def _sent(statement: Any) -> str:
    dialect: Any = asyncpg.dialect
    return str(statement.compile(dialect=dialect()))
