"""What a removal means before the commit: for who looks, for who takes its place, and for itself (K12)."""

from __future__ import annotations

from uuid import UUID

import pytest

from outbox_kernel.errors import KernelError, StaleAggregate
from outbox_kernel.kernel import UnitOfWork
from tests.conformance.adapters import Adapter
from tests.conformance.wallets import Paid, Wallet


async def removed(adapter: Adapter, uow: UnitOfWork, wallet_id: UUID) -> Wallet:
    """The wallet, with a last event and removed, not committed."""
    wallet = await uow.repository(adapter.wallet).get(wallet_id)
    assert wallet is not None
    wallet.pay(1)
    await uow.repository(adapter.wallet).remove(wallet)
    return wallet


async def test_what_was_removed_is_not_found(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        await removed(adapter, uow, wallet_id)
        assert await uow.repository(adapter.wallet).get(wallet_id) is None
        assert await adapter.stored(wallet_id) is not None
        await uow.commit()
    assert await adapter.stored(wallet_id) is None
    assert await adapter.numbers() == [1, 2]


async def test_what_was_removed_makes_room_for_one_with_its_unique_value(adapter: Adapter) -> None:
    wallet_id = await adapter.given("ada")
    async with adapter.unit_of_work() as uow:
        await removed(adapter, uow, wallet_id)
        second = adapter.wallet.open("ada")
        uow.repository(adapter.wallet).add(second)
        await uow.commit()
    assert await adapter.stored(wallet_id) is None
    assert await adapter.stored(second.id) is not None
    assert await adapter.numbers() == [1, 2, 1]


async def test_what_was_removed_cannot_be_added_again(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await removed(adapter, uow, wallet_id)
        with pytest.raises(KernelError, match="was removed, so it cannot be added; roll back"):
            uow.repository(adapter.wallet).add(wallet)
        await uow.commit()
    assert await adapter.stored(wallet_id) is None


async def test_what_was_removed_records_no_more(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await removed(adapter, uow, wallet_id)
        with pytest.raises(StaleAggregate):
            wallet.record(Paid(1))
        await uow.commit()
    assert await adapter.numbers() == [1, 2]


async def test_to_remove_it_twice_is_to_remove_it(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await removed(adapter, uow, wallet_id)
        await uow.repository(adapter.wallet).remove(wallet)
        await uow.commit()
    assert await adapter.stored(wallet_id) is None
    assert await adapter.numbers() == [1, 2]


async def test_a_removal_that_was_rolled_back_can_be_made_again(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await removed(adapter, uow, wallet_id)
        await uow.rollback()
        await uow.repository(adapter.wallet).remove(wallet)
        await uow.commit()
    assert await adapter.stored(wallet_id) is None
    assert await adapter.numbers() == [1]


async def test_what_a_commit_has_removed_is_as_gone_as_before_it(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await removed(adapter, uow, wallet_id)
        await uow.commit()
        await uow.repository(adapter.wallet).remove(wallet)
        await uow.commit()
    async with adapter.unit_of_work() as later:
        with pytest.raises(KernelError, match="was removed, so it cannot be added"):
            later.repository(adapter.wallet).add(wallet)
        await later.repository(adapter.wallet).remove(wallet)
        await later.commit()
    assert await adapter.numbers() == [1, 2]


@pytest.mark.parametrize("looked_for", [False, True])
async def test_what_no_commit_has_stored_cannot_be_removed(adapter: Adapter, looked_for: bool) -> None:
    wallet = adapter.wallet.open()
    async with adapter.unit_of_work() as uow:
        repository = uow.repository(adapter.wallet)
        repository.add(wallet)
        if looked_for:
            # A database that has to be asked has the row by now.
            assert await repository.get(wallet.id) is wallet
        with pytest.raises(KernelError, match="is not stored, so it cannot be removed; commit it first"):
            await repository.remove(wallet)
        await uow.commit()
    assert await adapter.stored(wallet.id) is not None
