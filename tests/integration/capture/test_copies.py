"""C2, C4: copies of an aggregate, and what a merge makes of them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from outbox_kernel.errors import ConcurrencyError
from tests.bank import Bank, loaded
from tests.domain import Wallet

COPIES: list[Callable[[Any], Any]] = [copy.deepcopy, lambda wallet: pickle.loads(pickle.dumps(wallet))]  # noqa: S301


@pytest.mark.parametrize("copied", COPIES)
async def test_a_copy_of_an_aggregate_carries_the_events_of_its_state(
    bank: Bank, copied: Callable[[Any], Any]
) -> None:
    """C2: copied deeply or pickled, new or loaded; whichever commits first has the numbers."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
    wallet.note("before")
    twin, born = copied(wallet), copied(Wallet.open("born"))
    twin.note("after")
    async with bank.session() as session:
        session.add_all([twin, born])
        await session.commit()
    assert await bank.outbox() == ["1 ada", "2 before", "1 born", "3 after"]
    async with bank.session() as session:
        session.add(wallet)
        with pytest.raises(ConcurrencyError, match=r"event [0-9a-f-]{36} is in the outbox already"):
            await session.commit()


async def test_a_new_aggregate_whose_commit_had_succeeded_after_all_is_not_stored_twice(bank: Bank) -> None:
    """C4: the answer to a COMMIT may be lost, and whoever adds it again has to be told."""
    wallet = Wallet.open()
    twin = copy.deepcopy(wallet)
    for each in (wallet, twin):
        async with bank.session() as session:
            session.add(each)
            if each is wallet:
                await session.commit()
            else:
                with pytest.raises(
                    ConcurrencyError, match=r"is in the outbox already.*load it again and look"
                ):
                    await session.commit()
    assert await bank.outbox() == ["1 ada"]


async def test_merging_an_older_copy_is_a_conflict(bank: Bank) -> None:
    """C4: SQLAlchemy sees it before the flush."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        older = await loaded(session, wallet_id)
    async with bank.session() as session:
        (await loaded(session, wallet_id)).pay(1)
        await session.commit()
        older.balance = 7
        with pytest.raises(ConcurrencyError):
            await session.merge(older)
    assert await bank.row(wallet_id) == (1, 2)


async def test_a_merged_change_without_events_is_stored_and_counts_on(bank: Bank) -> None:
    """C4: attributes are what a merge carries."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        detached = await loaded(session, wallet_id)
    detached.balance = 5
    async with bank.session() as session:
        (await session.merge(detached)).pay(1)
        await session.commit()
    assert await bank.row(wallet_id) == (6, 2)
    assert await bank.stream(wallet_id) == ["1 ada", "2 1"]


async def test_what_is_no_conflict_comes_out_of_a_merge_as_the_database_said_it(bank: Bank) -> None:
    """C4: to load again and retry would not help."""
    async with bank.session() as session:
        with pytest.raises(DBAPIError, match="division by zero"):
            await session.execute(text("SELECT 1 / 0"))
        with pytest.raises(DBAPIError, match="current transaction is aborted"):
            await session.merge(Wallet(uuid4()))
