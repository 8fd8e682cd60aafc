"""K6: events written by hand through the dispatcher and the middleware, with and without capture."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import UUID, uuid4

import pytest
from sqlalchemy.event import listen
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from outbox_kernel.errors import ConcurrencyError, InvalidContext, UncommittedEvents, UnserializableEvent
from outbox_kernel.infrastructure.outbox import OutboxEventDispatcher, OutboxMiddleware, bus_of
from outbox_kernel.kernel import AggregateRoot, DomainEvent, EventBus, EventDispatcher, aggregate
from tests.bank import Bank, loaded
from tests.domain import Announced, Wallet


@pytest.fixture
async def plain(bank: Bank) -> AsyncIterator[AsyncSession]:
    """A session without capture."""
    async with async_sessionmaker(bank.engine, expire_on_commit=False)() as session:
        yield session


def announced(*texts: str) -> list[Announced]:
    return [Announced(text) for text in texts]


@pytest.mark.servers
async def test_a_session_without_capture_stores_what_is_dispatched(bank: Bank, plain: AsyncSession) -> None:
    """K6: a row per event, in their order, with aggregate and number where they have them."""
    wallet = Wallet.open()
    plain.add(wallet)
    wallet.pay(1)
    dispatcher = OutboxEventDispatcher(plain)
    assert isinstance(dispatcher, EventDispatcher)
    await dispatcher.dispatch([*wallet.collect_events(), *announced("a", "b")])
    await plain.commit()
    assert await bank.outbox() == ["1 ada", "2 1", "- a", "- b"]
    assert await bank.stream(wallet.id) == ["1 ada", "2 1"]
    assert wallet.recorded_events == ()


@pytest.mark.parametrize("captured", [True, False])
async def test_dispatching_neither_flushes_nor_commits(
    bank: Bank, plain: AsyncSession, captured: bool
) -> None:
    """K6: when to write is the session's business, so a rollback takes all back."""
    async with bank.session() as captured_session:
        session = captured_session if captured else plain
        await OutboxEventDispatcher(session).dispatch(announced("given up"))
        assert session.new
        assert not session.in_transaction() or await bank.outbox() == []
        await session.rollback()
        await session.commit()
    assert await bank.outbox() == []


async def test_the_dispatcher_takes_the_sync_session_as_well(bank: Bank) -> None:
    """K6: what runs inside `run_sync` has no other."""
    async with bank.session() as session:
        await OutboxEventDispatcher(session.sync_session).dispatch(announced("sync"))
        await session.commit()
    assert await bank.outbox() == ["- sync"]


@pytest.mark.servers
async def test_a_collected_event_is_written_once_on_a_captured_session(bank: Bank) -> None:
    """K6: before the flush, after it, and after the deletion of its aggregate."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        dispatcher = OutboxEventDispatcher(session)
        new, old = Wallet.open("new"), await loaded(session, wallet_id)
        session.add(new)
        old.note("before the flush")
        await dispatcher.dispatch([*new.collect_events(), *old.collect_events()])
        old.note("after the flush")
        await session.flush()
        await dispatcher.dispatch(old.collect_events())
        old.note("farewell")
        await session.delete(old)
        await session.flush()
        await dispatcher.dispatch(old.collect_events())
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 before the flush", "3 after the flush", "4 farewell"]
    assert await bank.stream(new.id) == ["1 new"]


@pytest.mark.parametrize("late", [False, True])
async def test_a_collected_event_is_written_once_though_its_aggregate_is_gone(bank: Bank, late: bool) -> None:
    """K6: the session holds nothing that it has flushed."""

    async def use_case(session: AsyncSession) -> tuple[DomainEvent, ...]:
        wallet = Wallet.open()
        session.add(wallet)
        if late:
            held = [wallet]
            listen(session.sync_session, "before_flush", lambda *_: held.pop().note("late"), once=True)
        await session.flush()
        return wallet.collect_events()

    async with bank.session() as session:
        collected = await use_case(session)
        gc.collect()
        assert not list(session)
        await OutboxEventDispatcher(session).dispatch(collected)
        await session.commit()
    assert await bank.outbox() == ["1 ada", "2 late"][: len(collected)]
    assert len(collected) == 1 + late


@pytest.mark.servers
async def test_a_recorded_event_is_refused_by_a_captured_session_that_does_not_store_its_aggregate(
    bank: Bank,
) -> None:
    """C1: the row would not count it, and whoever records next could never store his."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
    async with bank.session() as session:
        wallet.pay(1)
        await OutboxEventDispatcher(session).dispatch(wallet.collect_events())
        with pytest.raises(
            UncommittedEvents, match=rf"'Paid', event 2 of bank\.wallet {wallet_id}, .* add the aggregate"
        ):
            await session.commit()
        await session.rollback()
        assert await bank.outbox() == ["1 ada"]
        await OutboxEventDispatcher(session).dispatch(wallet.collect_events())
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 1"]
    assert await bank.row(wallet_id) == (1, 2)


async def test_a_recorded_event_of_an_aggregate_that_is_mapped_to_nothing_is_stored(bank: Bank) -> None:
    """K6: whoever dispatches it stores its state in a way of his own."""

    @aggregate("bank.unmapped")
    class Unmapped(AggregateRoot):
        id: UUID

    unmapped = Unmapped(uuid4())
    unmapped.record(Announced("stored by hand"))
    async with bank.session() as session:
        await OutboxEventDispatcher(session).dispatch(unmapped.collect_events())
        await session.commit()
    assert await bank.stream(unmapped.id) == ["1 stored by hand"]


async def test_dispatching_for_each_of_many_aggregates_looks_at_few_of_the_others(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K6: or the time would grow with the square of their number."""
    looked: list[object] = []
    logs = AggregateRoot._recorded_log  # noqa: SLF001 - where every look at an aggregate's events ends

    def look(self: AggregateRoot) -> list[DomainEvent]:
        looked.append(self)
        return logs(self)

    async with bank.session() as session:
        kept = []
        for number in range(50):
            wallet = Wallet.open(str(number))
            session.add(wallet)
            kept.append(wallet)
            collected = wallet.collect_events()
            with monkeypatch.context() as patched:
                patched.setattr(AggregateRoot, "_recorded_log", look)
                await OutboxEventDispatcher(session).dispatch(collected)
        await session.commit()
    assert len(looked) == len(kept)
    assert len(await bank.outbox()) == len(kept)


async def test_an_event_may_be_dispatched_before_its_aggregate_is_added(bank: Bank) -> None:
    """K6: new or loaded by an earlier session, it is written once."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        old = await loaded(session, wallet_id)
    old.pay(1)
    new = Wallet.open("new")
    async with bank.session() as session:
        dispatcher = OutboxEventDispatcher(session)
        await dispatcher.dispatch([*new.collect_events(), *old.collect_events(), *announced("beside")])
        session.add_all([new, old])
        new.pay(2)
        await session.commit()
    assert sorted(await bank.outbox()) == ["- beside", "1 ada", "1 new", "2 1", "2 2"]


async def test_collecting_takes_nothing_from_capture(bank: Bank) -> None:
    """K6: a collected event that nobody dispatches is written all the same."""
    async with bank.session() as session:
        wallet = Wallet.open()
        session.add(wallet)
        assert len(wallet.collect_events()) == 1
        assert wallet.recorded_events == ()
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada"]


async def test_a_captured_session_stores_events_of_no_aggregate_in_their_order(bank: Bank) -> None:
    """K6: made, or emitted on another bus."""
    stranger, bus = uuid4(), EventBus()
    bus.emit(Announced("emitted"), aggregate_type=Wallet, aggregate_id=stranger)
    async with bank.session() as session:
        dispatcher = OutboxEventDispatcher(session)
        await dispatcher.dispatch(bus.collect())
        await dispatcher.dispatch([Announced("made")])
        await session.commit()
    assert await bank.outbox() == ["- emitted", "- made"]
    assert await bank.stream(stranger) == ["- emitted"]


@pytest.mark.servers
@pytest.mark.parametrize("captured", [True, False])
async def test_the_middleware_writes_a_bus_and_says_how_much(
    bank: Bank, plain: AsyncSession, captured: bool
) -> None:
    """C6: in the session's transaction, with the context as headers; the bus is empty afterwards."""
    bus = EventBus()
    for event in announced("one", "two"):
        bus.emit(event)
    async with bank.session() as captured_session:
        session = captured_session if captured else plain
        assert await OutboxMiddleware.flush(session, bus, user_id="ada") == 2
        assert await OutboxMiddleware.flush(session, bus) == 0
        assert await bank.outbox() == []
        await session.commit()
    assert await bank.outbox() == ["- one", "- two"]
    assert [headers for _, _, headers in await bank.payloads()] == [{"user_id": "ada"}] * 2
    assert not bus.has_events


@pytest.mark.parametrize("captured", [True, False])
async def test_a_context_that_is_refused_leaves_the_bus_as_it_was(
    bank: Bank, plain: AsyncSession, captured: bool
) -> None:
    """C6: so that the call can be made again."""
    bus = EventBus()
    bus.emit(Announced("kept"))
    async with bank.session() as captured_session:
        session = captured_session if captured else plain
        with pytest.raises(InvalidContext):
            await OutboxMiddleware.flush(session, bus, amount=1.5)
        assert bus.event_count == 1
        assert await OutboxMiddleware.flush(session, bus, amount="1.5") == 1
        await session.commit()
    assert await bank.outbox() == ["- kept"]


@pytest.mark.parametrize("captured", [True, False])
async def test_of_events_dispatched_together_all_are_stored_or_none(
    bank: Bank, plain: AsyncSession, captured: bool
) -> None:
    """C7: though the caller commits after the refusal."""
    bus = EventBus()
    for what in ("good", "a\0b"):
        bus.emit(Announced(what))
    async with bank.session() as captured_session:
        session = captured_session if captured else plain
        with pytest.raises(UnserializableEvent):
            await OutboxMiddleware.flush(session, bus)
        with suppress(PendingRollbackError):
            await session.commit()
    assert await bank.outbox() == []


async def test_the_middleware_serves_a_captured_sessions_own_bus(bank: Bank) -> None:
    """C6: each event once, though the commit would have written it as well."""
    async with bank.session() as session:
        bank.emit(session, "own")
        assert await OutboxMiddleware.flush(session, bus_of(session), request_id="r1") == 1
        assert bus_of(session).event_count == 0
        await session.commit()
    [(_, _, headers)] = await bank.payloads()
    assert headers == {"request_id": "r1"}


@pytest.mark.parametrize("captured", [True, False])
async def test_an_event_that_cannot_be_stored_is_refused_by_either_way(
    bank: Bank, plain: AsyncSession, captured: bool
) -> None:
    """C7: with the same sentence."""
    async with bank.session() as captured_session:
        session = captured_session if captured else plain
        bus = EventBus()
        bus.emit(Announced("good"))
        bus.emit(Announced("a\0b"))
        with pytest.raises(UnserializableEvent, match="field 'what' holds a NUL"):
            await OutboxMiddleware.flush(session, bus)
        await session.rollback()
        await session.commit()
    assert await bank.outbox() == []


async def test_one_event_dispatched_twice_is_refused_by_the_database(bank: Bank, plain: AsyncSession) -> None:
    """K6: event_id is unique, whoever writes."""
    [event] = announced("once")
    await OutboxEventDispatcher(plain).dispatch([event])
    await plain.commit()
    async with bank.session() as session:
        await OutboxEventDispatcher(session).dispatch([event])
        with pytest.raises(ConcurrencyError, match=f"event {event.event_id} is in the outbox already"):
            await session.commit()
    assert await bank.outbox() == ["- once"]
