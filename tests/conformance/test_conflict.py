"""Two writers of one aggregate: one commits, the other is told, and nothing of it is stored (C4)."""

from __future__ import annotations

from uuid import UUID

import pytest

from outbox_kernel.errors import AggregateIdTaken, ConcurrencyError, StaleAggregate
from outbox_kernel.kernel import UnitOfWork, retry_on_conflict
from outbox_kernel.kernel.identity import uuid_of
from tests.conformance.adapters import Adapter
from tests.conformance.wallets import Announced, Paid, Wallet


async def loaded(adapter: Adapter, uow: UnitOfWork, wallet_id: UUID) -> Wallet:
    wallet = await uow.repository(adapter.wallet).get(wallet_id)
    assert wallet is not None
    return wallet


def assert_named(adapter: Adapter, error: ConcurrencyError, wallet_id: object) -> None:
    """C10: by the id as written, and not by the UUID that is derived from it."""
    assert f"{error.aggregate_type} {wallet_id} " in str(error)
    assert error.aggregate_key == (str(wallet_id) if adapter.is_declared else None)


async def test_of_two_writers_with_events_one_commits(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as winner, adapter.unit_of_work() as loser:
        first, second = await loaded(adapter, winner, wallet_id), await loaded(adapter, loser, wallet_id)
        assert first is not second
        first.pay(1)
        second.pay(2)
        loser.emit(Announced("lost as well"))
        await winner.commit()
        with pytest.raises(ConcurrencyError) as refused:
            await loser.commit()
        assert (refused.value.aggregate_type is None) == (refused.value.aggregate_id is None)
        if refused.value.aggregate_id is not None:
            assert_named(adapter, refused.value, wallet_id)
    stored = await adapter.stored(wallet_id)
    assert stored is not None
    assert stored.balance == 1
    assert await adapter.numbers() == [1, 2]


async def test_of_two_writers_without_events_one_commits(adapter: Adapter) -> None:
    wallet_id = await adapter.given("ada")
    async with adapter.unit_of_work() as winner, adapter.unit_of_work() as loser:
        first, second = await loaded(adapter, winner, wallet_id), await loaded(adapter, loser, wallet_id)
        first.hand_to("grace")
        second.hand_to("brian")
        await winner.commit()
        with pytest.raises(ConcurrencyError):
            await loser.commit()
    stored = await adapter.stored(wallet_id)
    assert stored is not None
    assert stored.owner == "grace"


async def test_a_writer_with_an_event_loses_to_one_without(adapter: Adapter) -> None:
    wallet_id = await adapter.given("ada")
    async with adapter.unit_of_work() as winner, adapter.unit_of_work() as loser:
        first, second = await loaded(adapter, winner, wallet_id), await loaded(adapter, loser, wallet_id)
        first.hand_to("grace")
        second.pay(2)
        await winner.commit()
        with pytest.raises(ConcurrencyError):
            await loser.commit()
    assert await adapter.numbers() == [1]


async def test_who_only_read_cannot_conflict(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as writer, adapter.unit_of_work() as reader:
        written, read = await loaded(adapter, writer, wallet_id), await loaded(adapter, reader, wallet_id)
        written.pay(1)
        await writer.commit()
        read.balance = read.balance  # assigned, yet unchanged
        reader.emit(Announced("read"))
        await reader.commit()
    assert await adapter.numbers() == [1, 2, None]


async def test_the_loser_is_stale_and_can_load_and_try_again(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as winner, adapter.unit_of_work() as loser:
        first, second = await loaded(adapter, winner, wallet_id), await loaded(adapter, loser, wallet_id)
        first.pay(1)
        second.pay(2)
        await winner.commit()
        with pytest.raises(ConcurrencyError):
            await loser.commit()
        with pytest.raises(StaleAggregate):
            second.record(Paid(3))
        assert await loaded(adapter, loser, wallet_id) is second
        # The event that was lost has the number of the winner's, and is not to be taken for it.
        assert second.recorded_events == ()
        second.pay(4)
        await loser.commit()
    stored = await adapter.stored(wallet_id)
    assert stored is not None
    assert stored.balance == 5
    assert await adapter.numbers() == [1, 2, 3]


async def test_an_object_kept_across_commits_loses_to_who_wrote_meanwhile(adapter: Adapter) -> None:
    wallet = adapter.wallet.open()
    async with adapter.unit_of_work() as uow, adapter.unit_of_work() as other:
        uow.repository(adapter.wallet).add(wallet)
        await uow.commit()
        (await loaded(adapter, other, wallet.id)).pay(1)
        await other.commit()
        wallet.pay(2)
        with pytest.raises(ConcurrencyError):
            await uow.commit()
    assert await adapter.numbers() == [1, 2]


async def test_a_change_of_what_another_removed_is_a_conflict(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as remover, adapter.unit_of_work() as writer:
        wallet = await loaded(adapter, writer, wallet_id)
        await remover.repository(adapter.wallet).remove(await loaded(adapter, remover, wallet_id))
        await remover.commit()
        wallet.pay(1)
        with pytest.raises(ConcurrencyError):
            await writer.commit()
    assert await adapter.stored(wallet_id) is None
    assert await adapter.numbers() == [1]


async def test_the_removal_of_what_another_changed_is_a_conflict(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as remover, adapter.unit_of_work() as writer:
        wallet = await loaded(adapter, remover, wallet_id)
        (await loaded(adapter, writer, wallet_id)).pay(1)
        await writer.commit()
        with pytest.raises(ConcurrencyError):  # at the latest by the commit
            await remover.repository(adapter.wallet).remove(wallet)
            await remover.commit()
    stored = await adapter.stored(wallet_id)
    assert stored is not None
    assert stored.balance == 1


async def test_a_new_aggregate_with_a_taken_id_is_refused(adapter: Adapter) -> None:
    wallet_id = await adapter.given("first")
    second = adapter.wallet.open("second", wallet_id)
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(second)
        with pytest.raises(AggregateIdTaken, match="needs an id of its own") as refused:
            await uow.commit()
    assert refused.value.aggregate_id == uuid_of(wallet_id)
    assert_named(adapter, refused.value, wallet_id)
    stored = await adapter.stored(wallet_id)
    assert stored is not None
    assert stored.owner == "first"


@pytest.mark.parametrize("told", [True, False])
async def test_an_id_that_lived_before_and_was_removed_is_refused(adapter: Adapter, told: bool) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        repository = uow.repository(adapter.wallet)
        await repository.remove(await loaded(adapter, uow, wallet_id))
        await uow.commit()
        again = (
            adapter.wallet.open("again", wallet_id) if told else adapter.wallet(id=wallet_id, owner="again")
        )
        repository.add(again)
        with pytest.raises(AggregateIdTaken, match="lived before and was deleted") as refused:
            await uow.commit()
    assert_named(adapter, refused.value, wallet_id)
    assert await adapter.stored(wallet_id) is None
    assert await adapter.numbers() == [1]


async def test_a_use_case_is_retried_from_its_first_line(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    uow = adapter.unit_of_work()
    seen: list[int] = []

    @retry_on_conflict
    async def pay_ten() -> int:
        async with uow:
            wallet = await loaded(adapter, uow, wallet_id)
            seen.append(wallet.balance)
            if len(seen) == 1:
                await _pay_elsewhere(adapter, wallet_id)
            wallet.pay(10)
            await uow.commit()
            return wallet.balance

    assert await pay_ten() == 11
    assert seen == [0, 1]
    assert await adapter.numbers() == [1, 2, 3]


async def test_who_never_wins_is_told_after_the_last_attempt(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    uow = adapter.unit_of_work()
    attempts = 0

    @retry_on_conflict(attempts=2)
    async def always_late() -> None:
        nonlocal attempts
        attempts += 1
        async with uow:
            wallet = await loaded(adapter, uow, wallet_id)
            await _pay_elsewhere(adapter, wallet_id)
            wallet.pay(10)
            await uow.commit()

    with pytest.raises(ConcurrencyError):
        await always_late()
    assert attempts == 2
    assert await adapter.numbers() == [1, 2, 3]


async def _pay_elsewhere(adapter: Adapter, wallet_id: UUID) -> None:
    async with adapter.unit_of_work() as uow:
        (await loaded(adapter, uow, wallet_id)).pay(1)
        await uow.commit()
