"""What is undone, and what the objects at hand are worth afterwards (C3)."""

from __future__ import annotations

from contextlib import nullcontext
from uuid import UUID

import pytest

from outbox_kernel.errors import StaleAggregate
from outbox_kernel.kernel import UnitOfWork
from outbox_kernel.kernel.errors import UncommittedWork
from tests.conformance.adapters import Adapter
from tests.conformance.wallets import Announced, Paid, Wallet


async def loaded(adapter: Adapter, uow: UnitOfWork, wallet_id: UUID) -> Wallet:
    wallet = await uow.repository(adapter.wallet).get(wallet_id)
    assert wallet is not None
    return wallet


async def test_leaving_without_a_commit_stores_nothing(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    new = adapter.wallet.open("new")
    with pytest.warns(UncommittedWork, match="left without a commit"):
        async with adapter.unit_of_work() as uow:
            (await loaded(adapter, uow, wallet_id)).pay(1)
            uow.repository(adapter.wallet).add(new)
            uow.emit(Announced("never"))
    assert await adapter.numbers() == [1]
    assert await adapter.stored(new.id) is None
    stored = await adapter.stored(wallet_id)
    assert stored is not None
    assert stored.balance == 0


async def test_an_error_in_the_block_stores_nothing_and_comes_out(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    with pytest.raises(ZeroDivisionError):
        async with adapter.unit_of_work() as uow:
            (await loaded(adapter, uow, wallet_id)).pay(1)
            uow.emit(Announced("never"))
            _ = 1 / 0
    assert await adapter.numbers() == [1]


async def test_what_was_committed_before_an_error_stays(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    with pytest.raises(ZeroDivisionError):
        async with adapter.unit_of_work() as uow:
            wallet = await loaded(adapter, uow, wallet_id)
            wallet.pay(1)
            await uow.commit()
            wallet.pay(2)
            _ = 1 / 0
    assert await adapter.numbers() == [1, 2]


async def test_after_the_block_what_was_loaded_can_still_be_read(adapter: Adapter) -> None:
    wallet_id = await adapter.given("ada")
    async with adapter.unit_of_work() as uow:
        wallet = await loaded(adapter, uow, wallet_id)
    assert (wallet.owner, wallet.version) == ("ada", 1)


async def test_what_a_block_changed_and_did_not_commit_is_stale_after_it(adapter: Adapter) -> None:
    """C3a: or a later block that adds it would commit what this one gave up."""
    wallet_id = await adapter.given("ada")
    for with_event in (True, False):
        # Of a change without an event nobody would hear anyway.
        said = pytest.warns(UncommittedWork, match="left without a commit") if with_event else nullcontext()
        with said:
            async with adapter.unit_of_work() as uow:
                wallet = await loaded(adapter, uow, wallet_id)
                if with_event:
                    wallet.pay(1)
                else:
                    wallet.hand_to("bob")
        assert wallet.recorded_events == ()
        with pytest.raises(StaleAggregate, match="load it again"):
            wallet.record(Paid(1))
        async with adapter.unit_of_work() as uow:
            uow.repository(adapter.wallet).add(wallet)
            await uow.commit()
    assert await adapter.numbers() == [1]
    stored = await adapter.stored(wallet_id)
    assert stored is not None
    assert (stored.owner, stored.balance) == ("ada", 0)


async def test_what_a_block_gave_up_can_be_loaded_by_a_later_one(adapter: Adapter) -> None:
    """C3a: as the object that it was."""
    wallet_id = await adapter.given()
    with pytest.warns(UncommittedWork, match="left without a commit"):
        async with adapter.unit_of_work() as uow:
            wallet = await loaded(adapter, uow, wallet_id)
            wallet.pay(1)
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        assert await loaded(adapter, uow, wallet_id) is wallet
        wallet.pay(2)
        await uow.commit()
    assert await adapter.numbers() == [1, 2]


async def test_an_error_in_the_block_takes_the_changes_from_its_aggregates(adapter: Adapter) -> None:
    """C3a: whoever catches it holds nothing that was never stored."""
    wallet_id = await adapter.given()
    with pytest.raises(ZeroDivisionError):
        async with adapter.unit_of_work() as uow:
            wallet = await loaded(adapter, uow, wallet_id)
            wallet.pay(1)
            _ = 1 / 0
    with pytest.raises(StaleAggregate):
        wallet.record(Paid(2))


async def test_what_a_block_was_to_remove_and_did_not_commit_is_stale_after_it(adapter: Adapter) -> None:
    """C3a: its farewell would else be stored by a block that removes nothing."""
    wallet_id = await adapter.given()
    with pytest.warns(UncommittedWork, match="left without a commit"):
        async with adapter.unit_of_work() as uow:
            wallet = await loaded(adapter, uow, wallet_id)
            wallet.pay(1)
            await uow.repository(adapter.wallet).remove(wallet)
    with pytest.raises(StaleAggregate):
        wallet.record(Paid(2))
    assert await adapter.stored(wallet_id) is not None


async def test_what_is_new_after_a_block_without_a_commit_is_new_with_all_its_events(
    adapter: Adapter,
) -> None:
    """C3b: and counts on."""
    wallet = adapter.wallet.open("ada")
    with pytest.warns(UncommittedWork, match="left without a commit"):
        async with adapter.unit_of_work() as uow:
            uow.repository(adapter.wallet).add(wallet)
            wallet.pay(1)
    wallet.pay(2)
    assert [each.aggregate_version for each in wallet.recorded_events] == [1, 2, 3]
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        await uow.commit()
    assert await adapter.numbers() == [1, 2, 3]


async def test_what_a_block_committed_stays_readable_after_it(adapter: Adapter) -> None:
    """C3: nothing is given up that was stored."""
    wallet_id = await adapter.given("ada")
    async with adapter.unit_of_work() as uow:
        wallet = await loaded(adapter, uow, wallet_id)
        wallet.pay(1)
        await uow.commit()
        wallet.balance = wallet.balance  # assigned, yet unchanged
    assert (wallet.owner, wallet.balance, wallet.version) == ("ada", 1, 2)


async def test_a_rolled_back_aggregate_is_stale_until_it_is_loaded_again(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await loaded(adapter, uow, wallet_id)
        wallet.pay(1)
        await uow.rollback()
        assert wallet.recorded_events == ()
        with pytest.raises(StaleAggregate, match="load it again"):
            wallet.record(Paid(2))
        assert await loaded(adapter, uow, wallet_id) is wallet
        assert (wallet.balance, wallet.version, wallet.recorded_events) == (0, 1, ())


async def test_an_event_recorded_after_a_rollback_takes_the_number_of_the_dropped_one(
    adapter: Adapter,
) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        (await loaded(adapter, uow, wallet_id)).pay(1)
        await uow.rollback()
        (await loaded(adapter, uow, wallet_id)).pay(2)
        await uow.commit()
    assert await adapter.numbers() == [1, 2]
    last = (await adapter.events())[-1]
    assert isinstance(last, Paid)
    assert last.amount == 2


async def test_a_stale_aggregate_is_not_written(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        (await loaded(adapter, uow, wallet_id)).pay(1)
        await uow.rollback()
        await uow.commit()
    assert await adapter.numbers() == [1]


async def test_a_rolled_back_new_aggregate_keeps_its_events_and_can_be_added_again(adapter: Adapter) -> None:
    wallet = adapter.wallet.open("ada")
    async with adapter.unit_of_work() as uow:
        repository = uow.repository(adapter.wallet)
        repository.add(wallet)
        wallet.pay(1)
        await uow.rollback()
        assert [each.aggregate_version for each in wallet.recorded_events] == [1, 2]
        await uow.commit()
        assert await adapter.outbox() == []
        wallet.pay(2)
        repository.add(wallet)
        await uow.commit()
    assert await adapter.numbers() == [1, 2, 3]
    stored = await adapter.stored(wallet.id)
    assert stored is not None
    assert (stored.owner, stored.balance) == ("ada", 3)


async def test_a_rolled_back_new_aggregate_can_be_added_to_another_unit_of_work(adapter: Adapter) -> None:
    wallet = adapter.wallet.open()
    with pytest.warns(UncommittedWork, match="left without a commit"):
        async with adapter.unit_of_work() as uow:
            uow.repository(adapter.wallet).add(wallet)
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        await uow.commit()
    assert await adapter.numbers() == [1]


async def test_emitted_events_are_dropped_on_rollback(adapter: Adapter) -> None:
    async with adapter.unit_of_work() as uow:
        uow.emit(Announced("dropped"))
        await uow.rollback()
        assert not uow.bus.has_events
        uow.emit(Announced("kept"))
        await uow.commit()
    assert [record.payload["what"] for record in await adapter.outbox()] == ["kept"]


async def test_a_rollback_undoes_nothing_of_an_earlier_commit(adapter: Adapter) -> None:
    wallet = adapter.wallet.open()
    wallet_id = wallet.id
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        await uow.commit()
        wallet.pay(1)
        await uow.rollback()
        # It has a row by now: it is no new one any more.
        with pytest.raises(StaleAggregate):
            wallet.record(Paid(2))
        await loaded(adapter, uow, wallet_id)
        assert wallet.version == 1
    assert await adapter.numbers() == [1]


async def test_a_rollback_right_after_a_commit_has_nothing_to_undo(adapter: Adapter) -> None:
    wallet = adapter.wallet.open("ada")
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        await uow.commit()
        await uow.rollback()
        assert wallet.owner == "ada"
        wallet.pay(1)
        await uow.commit()
    assert await adapter.numbers() == [1, 2]
