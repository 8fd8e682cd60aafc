"""C10: what maps itself is in memory what it is in a database: its children, its defaults, its key."""

from __future__ import annotations

import pytest

from outbox_kernel.errors import StaleAggregate
from outbox_kernel.kernel.identity import uuid_of
from tests.conformance.adapters import Adapter
from tests.conformance.wallets import (
    CardPayment,
    DeclaredWallet,
    Ledger,
    OwnerTaken,
    Paid,
    Payment,
    WirePayment,
)

pytestmark = pytest.mark.parametrize("adapter", ["memory, declared", "postgres, declared"], indirect=True)


async def given(adapter: Adapter) -> DeclaredWallet:
    """A wallet with a child, as it is after the block that has stored it."""
    wallet = DeclaredWallet.open()
    wallet.slip(1)
    async with adapter.unit_of_work() as uow:
        uow.repository(DeclaredWallet).add(wallet)
        await uow.commit()
    return wallet


def told(wallet: DeclaredWallet) -> tuple[str, int, int, int, list[int]]:
    amounts = [slip.amount for slip in wallet.slips]
    return wallet.owner, wallet.balance, wallet.version, wallet.revision, amounts


async def test_a_committed_aggregate_with_children_is_as_it_was_when_it_was_committed(
    adapter: Adapter,
) -> None:
    """C10: children are compared by their identity, and are no change by being another's copy."""
    assert told(await given(adapter)) == ("ada", 1, 2, 1, [1])


async def test_a_committed_aggregate_goes_on_in_the_same_block(adapter: Adapter) -> None:
    async with adapter.unit_of_work() as uow:
        uow.repository(DeclaredWallet).add(wallet := DeclaredWallet.open())
        await uow.commit()
        wallet.slip(2)
        await uow.commit()
        wallet.hand_to("brian")
        await uow.commit()
    assert told(wallet) == ("brian", 2, 2, 3, [2])
    assert await adapter.numbers() == [1, 2]


async def test_what_a_block_has_only_read_stays_readable_after_it(adapter: Adapter) -> None:
    key = (await given(adapter)).id
    async with adapter.unit_of_work() as uow:
        wallet = await uow.repository(DeclaredWallet).get(key)
        assert wallet is not None
        wallet.balance = wallet.balance
    assert told(wallet) == ("ada", 1, 2, 1, [1])


async def test_what_is_undone_is_stale_until_it_is_loaded_again_with_its_children(adapter: Adapter) -> None:
    """C3a."""
    key = (await given(adapter)).id
    async with adapter.unit_of_work() as uow:
        wallet = await uow.repository(DeclaredWallet).get(key)
        assert wallet is not None
        wallet.slip(5)
        await uow.rollback()
        with pytest.raises(StaleAggregate):
            wallet.record(Paid(6))
        assert await uow.repository(DeclaredWallet).get(key) is wallet
        assert told(wallet) == ("ada", 1, 2, 1, [1])
        wallet.slip(7)
        await uow.commit()
    assert told(wallet) == ("ada", 8, 3, 2, [1, 7])


async def test_a_row_makes_the_key_and_fills_in_what_has_a_default(adapter: Adapter) -> None:
    """K2: at the commit, and what was recorded before it knows the key from then on."""
    first, second = Ledger(), Ledger(title="second", pages=9)
    first.record(Paid(1))
    second.record(Paid(2))
    first.record(Paid(3))
    async with adapter.unit_of_work() as uow:
        uow.repository(Ledger).add(first)
        uow.repository(Ledger).add(second)
        assert await uow.repository(Ledger).get(adapter.new_id()) is None
        await uow.commit()
        assert await uow.repository(Ledger).get(first.id) is first
    assert first.id != second.id
    assert [(each.title, each.pages) for each in (first, second)] == [("untitled", 1), ("second", 9)]
    found = [
        (each.aggregate_key, each.aggregate_id, each.aggregate_version) for each in await adapter.outbox()
    ]
    one, other = str(first.id), str(second.id)
    assert found == [(one, uuid_of(one), 1), (other, uuid_of(other), 1), (one, uuid_of(one), 2)]


async def test_a_commit_that_fails_takes_the_key_back(adapter: Adapter) -> None:
    """C3b: what was new is new again, with all its events, and gets a key at the next."""
    await given(adapter)
    ledger = Ledger()
    ledger.record(Paid(1))
    async with adapter.unit_of_work() as uow:
        uow.repository(Ledger).add(ledger)
        uow.repository(DeclaredWallet).add(DeclaredWallet.open())
        with pytest.raises(OwnerTaken):
            await uow.commit()
        nobody: object = ledger.id
        assert nobody is None
        assert [each.aggregate_version for each in ledger.recorded_events] == [1]
        uow.repository(Ledger).add(ledger)
        await uow.commit()
    assert [each.aggregate_key for each in await adapter.outbox()][2:] == [str(ledger.id)]


@pytest.mark.parametrize("cls", [CardPayment, WirePayment])
async def test_what_inherits_its_mapping_is_found_by_its_base(
    adapter: Adapter, cls: type[CardPayment | WirePayment]
) -> None:
    """C10: in the block that stores it and in the next, with its own class and name."""
    payment = cls()
    payment.record(Paid(5))
    async with adapter.unit_of_work() as uow:
        uow.repository(Payment).add(payment)
        await uow.commit()
        assert await uow.repository(Payment).get(payment.id) is payment
        assert await uow.repository(cls).get(payment.id) is payment
    async with adapter.unit_of_work() as uow:
        found = await uow.repository(Payment).get(payment.id)
        assert isinstance(found, cls)
        found.record(Paid(6))
        await uow.commit()
        assert await uow.repository(Payment).get(adapter.new_id()) is None
    told = [(each.aggregate_type, each.aggregate_key) for each in await adapter.outbox()]
    assert told == [(cls.__aggregate__, str(payment.id))] * 2
