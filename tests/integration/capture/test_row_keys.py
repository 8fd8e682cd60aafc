"""K2, C10: keys that the row makes, and ids that are not changed once it has."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from outbox_kernel import (
    OutboxEventDispatcher,
    SqlAlchemyUnitOfWork,
    bus_of,
    session_factory,
)
from outbox_kernel.errors import (
    AggregateHasNoId,
    AggregateIdTaken,
    IdentityMoved,
    UncommittedEvents,
)
from outbox_kernel.kernel.identity import KEY_NAMESPACE
from tests.bank import Bank
from tests.domain import Wallet
from tests.market import (
    Counted,
    Invoice,
    InvoiceNumber,
    Order,
    Renamed,
    Stamped,
    Ticket,
    Told,
    placed,
    streams,
)


@pytest.mark.parametrize("cls", [Order, Counted, Ticket, Stamped])
async def test_what_is_recorded_before_the_row_makes_the_key_is_stored_with_it_in_order(
    shop: Bank, cls: Any
) -> None:
    """K2, C10: numbered at record, written in the same flush, between all else that it writes."""
    async with shop.session() as session:
        one, other, wallet = cls(), cls(), Wallet.open("ada")
        bus = bus_of(session)
        one.record(Told("1"))
        bus.emit(Told("2"))
        other.record(Told("3"))
        wallet.note("4")
        one.record(Told("5"))
        assert [each.aggregate_version for each in one.recorded_events] == [1, 2]
        session.add_all([other, wallet, one])
        await session.flush()
        assert not bus.has_events
        assert {each.aggregate_id for each in one.recorded_events} == {one.recorded_events[0].aggregate_id}
        one.record(Told("6"))
        await session.commit()
    told = [(row[2], row[3]) for row in await streams(shop)]
    assert told == [(1, "ada"), (1, "1"), (None, "2"), (1, "3"), (2, "4"), (2, "5"), (3, "6")]


async def test_a_key_that_was_made_in_a_transaction_goes_with_it(shop: Bank) -> None:
    """C3b: what was inserted is new again, has all its events, and gets a key of its own."""
    async with shop.session() as session:
        session.add_all([order := Order(), counted := Counted()])
        order.place()
        counted.record(Told("counted"))
        await session.flush()
        await session.rollback()
        assert [each.aggregate_version for each in order.recorded_events] == [1]
        order.record(Told("after"))
        session.add_all([order, counted])
        await session.commit()
        assert await session.scalar(select(Order.id)) == order.id
        assert await session.scalar(select(Counted.id)) == counted.id
    expected = [
        ("shop.order", str(order.id), 1, "placed"),
        ("Counted", str(counted.id), 1, "counted"),
        ("shop.order", str(order.id), 2, "after"),
    ]
    assert await streams(shop) == expected


async def test_a_savepoint_that_is_rolled_back_takes_the_key_along(shop: Bank) -> None:
    """C3b."""
    async with shop.session() as session:
        counted = Counted()
        counted.record(Told("counted"))
        savepoint = await session.begin_nested()
        session.add(counted)
        await session.flush()
        await savepoint.rollback()
        session.add(counted)
        await session.commit()
    assert await streams(shop) == [("Counted", str(counted.id), 1, "counted")]


async def test_an_event_that_a_listener_records_on_a_row_without_a_key_is_stored(shop: Bank) -> None:
    """C2: recorded in a flush, after capture has looked."""
    from sqlalchemy import event as sqlalchemy_event

    async with shop.session() as session:
        session.add(order := Order())

        @sqlalchemy_event.listens_for(session.sync_session, "before_flush", once=True)
        def late(*_: object) -> None:
            order.place()

        await session.commit()
    assert await streams(shop) == [("shop.order", str(order.id), 1, "placed")]


@pytest.mark.parametrize("cls", [Order, Counted, Ticket])
async def test_another_driver_makes_keys_as_well(shop: Bank, cls: Any) -> None:
    """C9, C10: psycopg."""
    engine = create_async_engine(shop.engine.url.set(drivername="postgresql+psycopg"))
    maker = session_factory(engine)
    async with maker() as session:
        made = [cls() for _ in range(3)]
        for number, each in enumerate(made):
            each.record(Told(str(number)))
        session.add_all(made)
        await session.commit()
    await engine.dispose()
    key = {"Ticket": lambda _: None}.get(cls.__name__, str)
    found = [(row[1], row[2], row[3]) for row in await streams(shop)]
    assert found == [(key(each.id), 1, str(number)) for number, each in enumerate(made)]


@pytest.mark.parametrize(
    ("make", "name", "other"),
    [
        (lambda: Order(id=7), "id", 8),
        (lambda: Invoice(id=InvoiceNumber(7)), "id", InvoiceNumber(8)),
        (lambda: Renamed(number=7), "number", 8),
        (lambda: Renamed(number=7), "id", 8),
    ],
)
async def test_a_stored_id_is_not_changed_whatever_it_is_made_of(
    shop: Bank, make: Any, name: str, other: object
) -> None:
    """C3: its stream would begin anew, or in the middle."""
    async with shop.session() as session:
        session.add(made := make())
        made.record(Told("first"))
        await session.commit()
        with pytest.raises(IdentityMoved, match="is stored, and its id cannot become"):
            setattr(made, name, other)
        made.record(Told("second"))
        await session.commit()
    assert [row[1:] for row in await streams(shop)] == [("7", 1, "first"), ("7", 2, "second")]


async def test_a_key_that_is_given_after_the_record_is_the_events_own(shop: Bank) -> None:
    """K2: before the flush, whoever makes it."""
    async with shop.session() as session:
        order = Order()
        order.place()
        order.id = 99
        session.add(order)
        await session.commit()
    assert await streams(shop) == [("shop.order", "99", 1, "placed")]


async def test_an_id_that_is_in_use_is_told(shop: Bank) -> None:
    """C4."""
    key = await placed(shop)
    async with shop.session() as session:
        session.add(order := Order(id=key))
        order.place()
        with pytest.raises(AggregateIdTaken):
            await session.commit()


async def test_what_is_not_committed_is_not_expunged_though_it_has_no_key_yet(shop: Bank) -> None:
    """C3."""
    async with shop.session() as session:
        session.add(order := Order())
        order.place()
        with pytest.raises(UncommittedEvents):
            session.expunge(order)


async def test_a_session_without_capture_flushes_before_such_an_aggregate_records(shop: Bank) -> None:
    """K6, K2: an event without its aggregate's key would be nobody's, and is refused."""
    async with AsyncSession(shop.engine, expire_on_commit=False) as session:
        early = Order()
        early.place()
        with pytest.raises(AggregateHasNoId, match="flush the aggregate before it records"):
            await OutboxEventDispatcher(session).dispatch(early.collect_events())
        session.add(order := Order())
        await session.flush()
        order.place()
        await OutboxEventDispatcher(session).dispatch(order.collect_events())
        await session.commit()
    assert await streams(shop) == [("shop.order", str(order.id), 1, "placed")]


async def test_the_unit_of_work_finds_an_aggregate_by_its_key(shop: Bank) -> None:
    """C10: `repository(Order).get(1)`."""
    async with SqlAlchemyUnitOfWork(shop.sessions) as uow:
        order = Order()
        order.place()
        uow.repository(Order).add(order)
        await uow.commit()
        found = await uow.repository(Order).get(order.id)
        assert found is order
        uow.emit(Told("emitted"), aggregate_type=Order, aggregate_id=order.id)
        await uow.commit()
    assert await streams(shop) == [
        ("shop.order", str(order.id), 1, "placed"),
        ("shop.order", str(order.id), None, "emitted"),
    ]
    async with shop.engine.connect() as connection:
        ids = (await connection.scalars(text("SELECT DISTINCT aggregate_id FROM outbox_events"))).all()
    assert ids == [uuid5(KEY_NAMESPACE, str(order.id))]
    assert isinstance(ids[0], UUID)


async def test_rows_that_go_one_by_one_make_their_keys_and_their_events_have_them(shop: Bank) -> None:
    """K2, C10: as where an engine is told to send no two new rows together."""
    engine = create_async_engine(shop.engine.url, use_insertmanyvalues=False)
    async with session_factory(engine)() as session:
        made = [Counted(), Counted(), Counted()]
        for number, each in enumerate(made):
            each.record(Told(str(number)))
        session.add_all(made)
        await session.commit()
    await engine.dispose()
    assert await streams(shop) == [("Counted", str(each.id), 1, str(n)) for n, each in enumerate(made)]
    assert len({each.id for each in made}) == 3
