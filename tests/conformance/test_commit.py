"""What a commit stores, and how its events are numbered, ordered and labelled."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from outbox_kernel.errors import IdentityMoved, UnserializableEvent, VersionMoved
from outbox_kernel.kernel import UnitOfWork, event_context
from outbox_kernel.kernel.catalogue import aggregate_type_of
from outbox_kernel.kernel.identity import uuid_of
from tests.conformance.adapters import Adapter
from tests.conformance.wallets import Announced, Opened, Paid, Wallet


async def test_a_commit_stores_the_aggregate_and_its_events(adapter: Adapter) -> None:
    wallet = adapter.wallet.open("ada")
    recorded = wallet.recorded_events
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        await uow.commit()
    stored = await adapter.stored(wallet.id)
    assert stored is not None
    assert (stored.owner, stored.version) == ("ada", 1)
    assert await adapter.events() == list(recorded)


async def test_a_record_says_whose_event_it_is(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    (record,) = await adapter.outbox()
    assert record.event_type == "conformance.opened"
    assert record.event_version == 1
    assert record.aggregate_type == aggregate_type_of(adapter.wallet)
    assert (record.aggregate_id, record.aggregate_version) == (uuid_of(wallet_id), 1)
    assert record.aggregate_key == (str(wallet_id) if adapter.is_declared else None)
    assert record.payload["owner"] == "ada"
    assert (record.event_id, record.occurred_at) == (record.event.event_id, record.event.occurred_at)


async def test_the_events_of_an_aggregate_are_numbered_without_gaps(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    for amount in (1, 2):
        async with adapter.unit_of_work() as uow:
            wallet = await uow.repository(adapter.wallet).get(wallet_id)
            assert wallet is not None
            wallet.pay(amount)
            wallet.pay(amount * 10)
            await uow.commit()
    assert await adapter.numbers() == [1, 2, 3, 4, 5]


async def test_each_commit_in_a_block_stores_what_is_new_since_the_last(adapter: Adapter) -> None:
    wallet = adapter.wallet.open()
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        await uow.commit()
        assert wallet.recorded_events == ()
        wallet.pay(1)
        await uow.commit()
        await uow.commit()
        wallet.pay(2)
        uow.emit(Announced("done"))
        await uow.commit()
    assert await adapter.numbers() == [1, 2, 3, None]
    stored = await adapter.stored(wallet.id)
    assert stored is not None
    assert (stored.balance, stored.version) == (3, 3)


async def test_adding_what_is_already_there_changes_nothing(adapter: Adapter) -> None:
    wallet = adapter.wallet.open()
    async with adapter.unit_of_work() as uow:
        repository = uow.repository(adapter.wallet)
        repository.add(wallet)
        repository.add(wallet)
        await uow.commit()
        repository.add(wallet)
        await uow.commit()
    assert await adapter.numbers() == [1]


async def test_records_stand_in_the_order_in_which_events_were_recorded_and_emitted(adapter: Adapter) -> None:
    first, second = adapter.wallet.open("first"), adapter.wallet.open("second")
    async with adapter.unit_of_work() as uow:
        second.pay(1)
        uow.emit(Announced("between"))
        first.pay(2)
        uow.repository(adapter.wallet).add(second)
        uow.repository(adapter.wallet).add(first)
        await uow.commit()
    found = [(type(each), getattr(each, "owner", None)) for each in await adapter.events()]
    assert found == [(Opened, "first"), (Opened, "second"), (Paid, None), (Announced, None), (Paid, None)]


async def test_an_emitted_event_is_collected_or_committed_and_never_both(adapter: Adapter) -> None:
    """K4: a query may have written it, and then it is not at hand any more: only a commit tells for certain."""
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        uow.emit(Announced("before the query"))
        assert uow.bus.event_count == 1
        await uow.repository(adapter.wallet).get(wallet_id)
        uow.emit(Announced("after it"))
        collected = [each.what for each in uow.bus.collect() if isinstance(each, Announced)]
        assert not uow.bus.has_events
        await uow.commit()
    committed = [each.what for each in await adapter.events() if isinstance(each, Announced)]
    assert [*committed, *collected] == ["before the query", "after it"]
    assert "after it" in collected


async def test_a_commit_may_store_an_event_alone(adapter: Adapter) -> None:
    async with adapter.unit_of_work() as uow:
        uow.emit(Announced("alone"))
        await uow.commit()
    (record,) = await adapter.outbox()
    assert record.payload["what"] == "alone"
    assert (record.aggregate_type, record.aggregate_id, record.aggregate_version) == (None, None, None)


async def test_an_emitted_event_may_belong_to_an_aggregate(adapter: Adapter) -> None:
    wallet_id = adapter.new_id()
    async with adapter.unit_of_work() as uow:
        for what in ("one", "two"):
            uow.emit(Announced(what), aggregate_type=adapter.wallet, aggregate_id=wallet_id)
        await uow.commit()
    assert [(each.aggregate_id, each.aggregate_version) for each in await adapter.outbox()] == [
        (uuid_of(wallet_id), None),
        (uuid_of(wallet_id), None),
    ]


async def test_what_is_collected_from_the_bus_is_no_longer_stored(adapter: Adapter) -> None:
    async with adapter.unit_of_work() as uow:
        uow.emit(Announced("taken"))
        assert uow.bus.has_events
        assert uow.bus.event_count == 1
        assert [type(each) for each in uow.bus.collect()] == [Announced]
        await uow.commit()
    assert await adapter.outbox() == []


async def test_the_context_of_the_commit_is_in_the_headers(adapter: Adapter) -> None:
    wallet = adapter.wallet.open()
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        with event_context(user_id="u-1", attempt=2):
            await uow.commit()
        wallet.pay(1)
        await uow.commit()
    assert [record.headers for record in await adapter.outbox()] == [{"user_id": "u-1", "attempt": 2}, {}]


async def test_a_collected_event_is_still_stored_once(adapter: Adapter) -> None:
    wallet = adapter.wallet.open()
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        assert len(wallet.collect_events()) == 1
        assert wallet.recorded_events == ()
        await uow.commit()
    assert await adapter.numbers() == [1]


async def test_a_change_without_an_event_is_stored(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await _loaded(adapter, uow, wallet_id)
        wallet.hand_to("grace")
        await uow.commit()
    stored = await adapter.stored(wallet_id)
    assert stored is not None
    assert stored.owner == "grace"
    assert await adapter.numbers() == [1]


async def test_an_event_that_cannot_be_stored_refuses_the_whole_commit(adapter: Adapter) -> None:
    wallet_id = await adapter.given("before")
    other = adapter.wallet.open("other")
    async with adapter.unit_of_work() as uow:
        wallet = await _loaded(adapter, uow, wallet_id)
        wallet.hand_to("after")
        uow.repository(adapter.wallet).add(other)
        uow.emit(Announced("fine"))
        uow.emit(Announced("not fine: \0"))
        with pytest.raises(UnserializableEvent, match="'what' holds a NUL"):
            await uow.commit()
        # Whoever catches that and commits again stores no half of it.
        await uow.commit()
    assert await adapter.numbers() == [1]
    assert await adapter.stored(other.id) is None
    stored = await adapter.stored(wallet_id)
    assert stored is not None
    assert stored.owner == "before"


async def test_a_version_that_was_raised_by_hand_is_refused(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await _loaded(adapter, uow, wallet_id)
        wallet.version = 9
        with pytest.raises(VersionMoved, match="from version 1 to 9"):
            await uow.commit()
    assert await adapter.numbers() == [1]


@pytest.mark.parametrize("told", [True, False])
async def test_another_id_of_a_stored_aggregate_is_refused(adapter: Adapter, told: bool) -> None:
    wallet_id, other_id = await adapter.given(), await adapter.given("other")
    async with adapter.unit_of_work() as uow:
        wallet, other = await _loaded(adapter, uow, wallet_id), await _loaded(adapter, uow, other_id)
        with pytest.raises(IdentityMoved, match="its id cannot become"):
            wallet.id = other.id
            if told:
                wallet.pay(1)
            await uow.commit()
        await uow.rollback()
    assert await adapter.numbers() == [1, 1]
    stored = await adapter.stored(wallet_id)
    assert stored is not None
    assert stored.owner != "other"


async def test_a_version_that_was_set_back_past_an_event_is_refused(adapter: Adapter) -> None:
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await _loaded(adapter, uow, wallet_id)
        version = wallet.version
        wallet.pay(1)
        with pytest.raises(VersionMoved, match=f"set back to {version}"):
            wallet.version = version
            await uow.commit()
        await uow.rollback()
    assert await adapter.numbers() == [1]


async def test_a_unique_value_that_is_taken_is_told_in_words_of_the_domain(adapter: Adapter) -> None:
    from tests.conformance.wallets import OwnerTaken

    await adapter.given("ada")
    other = adapter.wallet.open("ada")
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(other)
        with pytest.raises(OwnerTaken):
            await uow.commit()
    assert await adapter.numbers() == [1]
    assert await adapter.stored(other.id) is None


async def _loaded(adapter: Adapter, uow: UnitOfWork, wallet_id: object) -> Wallet:
    wallet = await uow.repository(adapter.wallet).get(wallet_id)
    assert wallet is not None
    return wallet


async def test_an_event_that_waits_for_a_moment_is_committed_now_with_its_number(adapter: Adapter) -> None:
    """K13: what an aggregate records, and what is emitted."""
    moment, wallet = datetime(2030, 1, 2, 9, tzinfo=UTC), adapter.wallet.open()
    async with adapter.unit_of_work() as uow:
        uow.repository(adapter.wallet).add(wallet)
        wallet.record(Announced("in the new year"), not_before=moment)
        wallet.pay(1)
        uow.emit(Announced("to all"), not_before=moment)
        await uow.commit()
    found = [(record.aggregate_version, record.not_before) for record in await adapter.outbox()]
    assert found == [(1, None), (2, moment), (3, None), (None, moment)]
