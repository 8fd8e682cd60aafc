"""The block, the repository in it, and the life of an aggregate."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from outbox_kernel.errors import DefinitionError, StaleAggregate, UnitOfWorkNotOpen
from outbox_kernel.kernel import UnitOfWork
from outbox_kernel.kernel.errors import UncommittedWork
from tests.conformance.adapters import Adapter
from tests.conformance.wallets import Announced, Paid, Slip, Wallet


async def loaded(adapter: Adapter, uow: UnitOfWork, wallet_id: UUID) -> Wallet:
    wallet = await uow.repository(adapter.wallet).get(wallet_id)
    assert wallet is not None
    return wallet


async def test_outside_its_block_a_unit_of_work_refuses_everything(adapter: Adapter) -> None:
    uow = adapter.unit_of_work()
    for use in (uow.commit, uow.rollback):
        with pytest.raises(UnitOfWorkNotOpen, match="use it inside `async with uow:`"):
            await use()
    with pytest.raises(UnitOfWorkNotOpen):
        await uow.__aexit__(None, None, None)
    with pytest.raises(UnitOfWorkNotOpen):
        uow.emit(Announced("early"))
    with pytest.raises(UnitOfWorkNotOpen):
        uow.repository(adapter.wallet)
    with pytest.raises(UnitOfWorkNotOpen):
        _ = uow.bus


async def test_after_its_block_a_unit_of_work_refuses_everything(adapter: Adapter) -> None:
    async with adapter.unit_of_work() as uow:
        await uow.commit()
    with pytest.raises(UnitOfWorkNotOpen):
        await uow.commit()


@pytest.mark.parametrize("wrong", [Slip, str, "wallet"])
async def test_a_repository_is_of_aggregates_alone(adapter: Adapter, wrong: Any) -> None:
    """K2: a model that is none records nothing, and two of its writers overwrite each other."""
    async with adapter.unit_of_work() as uow:
        with pytest.raises(
            DefinitionError, match=r"takes the class of an aggregate, and \w+ is none: derive it"
        ):
            uow.repository(wrong)


async def test_a_block_is_entered_once_at_a_time(adapter: Adapter) -> None:
    async with adapter.unit_of_work() as uow:
        uow.emit(Announced("outer"))
        with pytest.raises(UnitOfWorkNotOpen, match="open already"):
            async with uow:
                pass
        await uow.commit()
    assert len(await adapter.outbox()) == 1


async def test_entering_again_begins_anew(adapter: Adapter) -> None:
    wallet_id = await adapter.given("ada")
    uow = adapter.unit_of_work()
    with pytest.warns(UncommittedWork, match="left without a commit"):
        async with uow:
            before = await loaded(adapter, uow, wallet_id)
            before.pay(1)
            uow.emit(Announced("forgotten"))
    async with uow:
        after = await loaded(adapter, uow, wallet_id)
        assert after is not before
        assert (after.balance, uow.bus.event_count) == (0, 0)
        await uow.commit()
    assert await adapter.numbers() == [1]


async def test_the_same_aggregate_is_the_same_object(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await loaded(adapter, uow, wallet_id)
        wallet.pay(1)
        assert await loaded(adapter, uow, wallet_id) is wallet
        await uow.commit()
        assert await loaded(adapter, uow, wallet_id) is wallet


async def test_a_new_aggregate_is_found_in_its_block(adapter: Adapter) -> None:
    wallet = adapter.wallet.open()
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        assert await loaded(adapter, uow, wallet.id) is wallet
        await uow.rollback()


async def test_others_see_nothing_before_the_commit(adapter: Adapter) -> None:
    wallet = adapter.wallet.open()
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        assert await adapter.stored(wallet.id) is None
        await uow.commit()
        assert await adapter.stored(wallet.id) is not None


async def test_what_others_load_is_no_object_of_mine(adapter: Adapter) -> None:
    wallet = adapter.wallet.open()
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        await uow.commit()
        wallet.balance = 77
        stored = await adapter.stored(wallet.id)
        assert stored is not None
        assert stored.balance == 0


async def test_an_unknown_id_is_none(adapter: Adapter) -> None:
    async with adapter.unit_of_work() as uow:
        assert await uow.repository(adapter.wallet).get(adapter.new_id()) is None


async def test_a_removed_aggregate_is_gone_and_its_last_event_is_kept(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await loaded(adapter, uow, wallet_id)
        wallet.pay(1)
        await uow.repository(adapter.wallet).remove(wallet)
        await uow.commit()
        assert await uow.repository(adapter.wallet).get(wallet_id) is None
    assert await adapter.stored(wallet_id) is None
    assert await adapter.numbers() == [1, 2]


async def test_a_removed_aggregate_records_no_more(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await loaded(adapter, uow, wallet_id)
        await uow.repository(adapter.wallet).remove(wallet)
        await uow.commit()
        with pytest.raises(StaleAggregate):
            wallet.record(Paid(1))


async def test_a_removal_that_is_rolled_back_removes_nothing(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        await uow.repository(adapter.wallet).remove(await loaded(adapter, uow, wallet_id))
        await uow.rollback()
        wallet = await loaded(adapter, uow, wallet_id)
        wallet.pay(1)
        await uow.commit()
    assert await adapter.numbers() == [1, 2]
    assert await adapter.stored(wallet_id) is not None


async def test_an_aggregate_of_an_earlier_block_can_be_added_to_a_later_one(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await loaded(adapter, uow, wallet_id)
    wallet.pay(1)
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        await uow.commit()
    assert await adapter.numbers() == [1, 2]
