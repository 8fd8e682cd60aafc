"""C7: what cannot be stored is refused before the write, by event and field, and its transaction leaves nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event as sa_event
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError, PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncSession

from outbox_kernel.errors import (
    AggregateHasNoId,
    AlreadyRecorded,
    KernelError,
    UnknownEventType,
    UnserializableEvent,
    VersionMoved,
)
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.outbox import bus_of
from outbox_kernel.infrastructure.outbox.session import CapturedSession
from outbox_kernel.kernel import DomainEvent, event
from tests.bank import Bank, loaded
from tests.domain import Announced, Noted, Wallet, journal


@event("bank.filled")
class Filled(DomainEvent):
    text: str = ""
    number: float = 0.0
    price: Decimal = Decimal(0)
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


BAD_PAYLOADS: dict[str, tuple[DomainEvent, str]] = {
    "NUL": (Filled(text="a\0b"), "field 'text' holds a NUL character"),
    "lone surrogate": (Filled(text="\ud800"), "field 'text' holds a lone surrogate"),
    "NaN": (Filled(number=float("nan")), "field 'number' holds nan"),
    "infinity": (Filled(number=float("-inf")), "field 'number' holds -inf"),
    "decimal NaN": (Filled(price=Decimal("NaN")), "field 'price' holds the Decimal NaN"),
    "naive datetime": (Filled(at=datetime(2026, 1, 1)), "field 'at' holds a naive datetime"),  # noqa: DTZ001
    "2 MB": (Filled(text="x" * 2_000_000), "field 'text' takes 2,000,002 bytes, and 1,048,576 are the limit"),
    "wrong type": (Filled(text=7), "field 'text' holds int where str is declared"),  # type: ignore[arg-type]
}


def fresh(kind: str) -> tuple[DomainEvent, str]:
    """A new event of that kind: one object happens once."""
    bad, words = BAD_PAYLOADS[kind]
    fields = ("text", "number", "price", "at")
    return Filled(
        **{field: getattr(bad, field) for field in fields}
    ), rf"event 'bank.filled' cannot be stored: {words}"


async def refused(session: AsyncSession, words: str) -> None:
    """The commit is refused, and so is every further one until the caller rolls back."""
    with pytest.raises(UnserializableEvent, match=words) as caught:
        await session.commit()
    assert "\n" not in str(caught.value)
    with pytest.raises(PendingRollbackError):
        await session.commit()
    await session.rollback()
    await session.commit()


@pytest.mark.servers
@pytest.mark.parametrize("kind", BAD_PAYLOADS)
async def test_an_aggregates_event_that_cannot_be_stored_takes_its_transaction_with_it(
    bank: Bank, kind: str
) -> None:
    """C7: named by event and field; nothing is stored, though the caller catches the error and commits again."""
    wallet_id = await bank.open_wallet()
    bad, words = fresh(kind)
    async with bank.session() as session:
        session.add(Wallet.open("flushed before"))
        await session.execute(insert(journal).values(line="written before"))
        await session.flush()
        wallet = await loaded(session, wallet_id)
        wallet.pay(1)
        wallet.record(bad)
        bank.emit(session, "good")
        await refused(session, words)
    assert await bank.outbox() == ["1 ada"]
    assert await bank.row(wallet_id) == (0, 1)
    assert await bank.journal() == []


@pytest.mark.parametrize("kind", BAD_PAYLOADS)
async def test_a_bus_event_that_cannot_be_stored_takes_its_transaction_with_it(bank: Bank, kind: str) -> None:
    """C7: the next commit does not store all but the refused one."""
    wallet_id = await bank.open_wallet()
    bad, words = fresh(kind)
    async with bank.session() as session:
        (await loaded(session, wallet_id)).pay(1)
        bank.emit(session, "good")
        bus_of(session).emit(bad)
        await refused(session, words)
    assert await bank.outbox() == ["1 ada"]
    assert await bank.row(wallet_id) == (0, 1)


@pytest.mark.parametrize("moment", ["before_flush", "after_flush"])
@pytest.mark.parametrize("beside", ["an aggregate", "the bus alone"])
async def test_what_a_listener_emits_is_refused_like_anything_else(
    bank: Bank, moment: str, beside: str
) -> None:
    """C7: after capture's own listeners, and in a flush that has nothing else to write."""
    bad, words = fresh("NaN")
    async with bank.session() as session:

        def emit(sync_session: CapturedSession, *_: object) -> None:
            sync_session.outbox.emit(bad)

        sa_event.listen(session.sync_session, moment, emit, once=True)
        bank.emit(session, "good")
        if beside == "an aggregate" or moment == "after_flush":
            session.add(Wallet.open())
        await refused(session, words)
    assert await bank.outbox() == []


@pytest.mark.servers
async def test_a_refused_flush_cannot_be_committed(bank: Bank) -> None:
    """C7: a caller who catches the error of an explicit flush has to roll back."""
    bad, words = fresh("NUL")
    async with bank.session() as session:
        bank.emit(session, "good")
        await session.flush()
        bus_of(session).emit(bad)
        with pytest.raises(UnserializableEvent, match=words):
            await session.flush()
        with pytest.raises(PendingRollbackError):
            await session.commit()
        await session.rollback()
        await session.commit()
    assert await bank.outbox() == []


async def test_a_refusal_inside_a_savepoint_costs_the_savepoint(bank: Bank) -> None:
    """C7: a savepoint is there to give up a part."""
    bad, words = fresh("NUL")
    async with bank.session() as session:
        bank.emit(session, "kept")
        with pytest.raises(UnserializableEvent, match=words):
            async with session.begin_nested():
                session.add(wallet := Wallet.open())
                wallet.record(bad)
        await session.commit()
    assert await bank.outbox() == ["- kept"]


async def test_a_flush_that_fails_inside_a_savepoint_may_be_taken_back_as_a_whole(bank: Bank) -> None:
    """C3: with what was written before the savepoint, which can be stored anew."""
    async with bank.session() as session:
        session.add(wallet := Wallet.open())
        await session.flush()
        _ = await session.begin_nested()
        nobody: Any = None
        session.add(Wallet(uuid4(), nobody))
        with pytest.raises(IntegrityError):
            await session.flush()
        await session.rollback()
        session.add(wallet)
        await session.commit()
    assert await bank.outbox() == ["1 ada"]
    assert await bank.row(wallet.id) == (0, 1)


async def test_the_unit_of_work_stores_nothing_of_a_refused_commit(bank: Bank) -> None:
    """C7: it rolls back by itself, so the next commit is an empty one."""
    bad, words = fresh("2 MB")
    async with (uow := SqlAlchemyUnitOfWork(bank.sessions)):
        uow.repository(Wallet).add(Wallet.open())
        uow.emit(bad)
        with pytest.raises(UnserializableEvent, match=words):
            await uow.commit()
        await uow.commit()
    assert await bank.outbox() == []


async def test_a_payload_just_under_the_limit_is_stored(bank: Bank) -> None:
    """C7: the limit is one for payloads, in bytes."""
    async with bank.session() as session:
        bus_of(session).emit(Filled(text="ä" * (512 * 1024 - 200)))
        await session.commit()
    assert len(await bank.payloads()) == 1


async def test_text_that_looks_dangerous_and_is_not_comes_back_as_it_was(bank: Bank) -> None:
    """C7: nothing is refused that PostgreSQL can store."""
    what = "\\u0000 \\ \" ' ; -- {} $1 \U0001f4b6 \x01 \u2028 \r\n\t"
    async with bank.session() as session:
        bank.emit(session, what)
        await session.commit()
    [(_, payload, _)] = await bank.payloads()
    assert payload["what"] == what


class Unregistered(DomainEvent):
    """Derived, and never decorated."""


async def test_an_event_of_an_unregistered_class_is_refused_at_once(bank: Bank) -> None:
    """C7: by aggregate and bus; nothing is recorded, so nothing is stored."""
    wallet_id = await bank.open_wallet()
    words = r"Unregistered is no registered event; derive it from DomainEvent and put @event on it"
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        with pytest.raises(UnknownEventType, match=words):
            wallet.record(Unregistered())
        with pytest.raises(UnknownEventType, match=words):
            bus_of(session).emit(Unregistered())
        assert (wallet.version, wallet.recorded_events) == (1, ())
        await session.commit()
    assert await bank.outbox() == ["1 ada"]


async def test_an_event_on_an_aggregate_without_id_is_refused_at_once(bank: Bank) -> None:
    """C7: it would belong to no stream."""
    wallet = Wallet(None, "nobody")  # type: ignore[arg-type]
    with pytest.raises(
        AggregateHasNoId, match="Wallet has the id None, so no event can be recorded on it; give it"
    ):
        wallet.note("lost")
    assert (wallet.version, wallet.recorded_events) == (0, ())


async def test_an_event_object_happens_once(bank: Bank) -> None:
    """C7: recorded twice, it would be stored twice under one id."""
    wallet, noted = Wallet.open(), Noted("once")
    async with bank.session() as session:
        session.add(wallet)
        wallet.record(noted)
        with pytest.raises(AlreadyRecorded, match="make a new event"):
            wallet.record(noted)
        with pytest.raises(AlreadyRecorded):
            bus_of(session).emit(noted)
        await session.commit()
    assert await bank.outbox() == ["1 ada", "2 once"]


async def test_recording_inside_a_session_hook_after_the_write_is_refused(bank: Bank) -> None:
    """C3: the row of this flush would not have it, and no later flush would see it."""
    wallet = Wallet.open()
    async with bank.session() as session:
        session.add(wallet)

        def record(*_: object) -> None:
            wallet.note("too late")

        sa_event.listen(session.sync_session, "after_flush", record, once=True)
        with pytest.raises(
            VersionMoved, match="recorded an event inside a flush that had already written it"
        ):
            await session.commit()
        with pytest.raises(PendingRollbackError):
            await session.commit()
    assert await bank.outbox() == []


async def test_what_is_recorded_when_a_flush_is_over_is_written_by_the_next(bank: Bank) -> None:
    """C2: SQLAlchemy looks again before it commits, and finds what `after_flush_postexec` has changed."""
    wallet, bystander_id = Wallet.open(), await bank.open_wallet("bob")
    async with bank.session() as session:
        bystander = await loaded(session, bystander_id)
        session.add(wallet)

        def record(*_: object) -> None:
            wallet.pay(1)
            bystander.pay(2)

        sa_event.listen(session.sync_session, "after_flush_postexec", record, once=True)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 1"]
    assert await bank.stream(bystander_id) == ["1 bob", "2 2"]
    assert await bank.row(wallet.id) == (1, 2)


@pytest.mark.parametrize("moment", ["after_insert", "after_update"])
async def test_recording_inside_a_mapper_hook_after_the_write_is_refused(bank: Bank, moment: str) -> None:
    """C3: such a hook runs when the aggregate's row has gone out."""

    def record(_: object, __: object, wallet: Wallet) -> None:
        wallet.note("too late")

    wallet_id = await bank.open_wallet()
    sa_event.listen(Wallet, moment, record)
    try:
        async with bank.session() as session:
            wallet = await loaded(session, wallet_id) if moment == "after_update" else Wallet.open("new")
            session.add(wallet)
            wallet.pay(1)
            with pytest.raises(VersionMoved, match="inside a flush that had already written it"):
                await session.commit()
    finally:
        sa_event.remove(Wallet, moment, record)
    assert await bank.outbox() == ["1 ada"]
    assert await bank.row(wallet_id) == (0, 1)


async def test_recording_on_a_bystander_inside_a_mapper_hook_is_refused(bank: Bank) -> None:
    """C3: an aggregate that was clean when the flush was planned is not written by it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        bystander, wallet = await loaded(session, wallet_id), Wallet.open("new")

        def record(*_: object) -> None:
            bystander.note("too late")

        sa_event.listen(Wallet, "after_insert", record)
        try:
            session.add(wallet)
            with pytest.raises(VersionMoved, match="inside a flush that had already written it"):
                await session.commit()
        finally:
            sa_event.remove(Wallet, "after_insert", record)
    assert await bank.outbox() == ["1 ada"]


async def test_a_flush_that_another_listener_refuses_leaves_nothing(bank: Bank) -> None:
    """C3: capture has written its rows by then; the caller cannot commit them without the state they tell of."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)

        def refuse(*_: object) -> None:
            raise ValueError("not on Sundays")

        sa_event.listen(session.sync_session, "before_flush", refuse, once=True)
        wallet.pay(1)
        bank.emit(session, "with it")
        with pytest.raises(ValueError, match="not on Sundays"):
            await session.flush()
        session.expire_all()
        with pytest.raises(PendingRollbackError):
            await session.commit()
        await session.rollback()
        await session.refresh(wallet)
        wallet.pay(2)
        await session.commit()
    assert await bank.outbox() == ["1 ada", "2 2"]


async def test_a_failed_flush_forgets_what_its_listeners_emitted(bank: Bank) -> None:
    """C3c: it was emitted in what is rolled back now."""
    async with bank.session() as session:

        def emit(sync_session: CapturedSession, *_: object) -> None:
            sync_session.outbox.emit(Announced("with it"))

        sa_event.listen(session.sync_session, "before_flush", emit, once=True)
        broken = Wallet(uuid4())
        broken.owner = None  # type: ignore[assignment]  # the database refuses it
        session.add(broken)
        with pytest.raises(Exception, match="null value"):
            await session.flush()
        await session.rollback()
        bank.emit(session, "after")
        await session.commit()
    assert await bank.outbox() == ["- after"]


async def test_a_flush_of_some_objects_only_is_refused(bank: Bank) -> None:
    """C1: rows and their events go together, so there is no flush of a part."""
    wallet = Wallet.open()
    async with bank.session() as session:
        session.add(wallet)
        with pytest.raises(KernelError, match=r"flushes as a whole.*call flush\(\)"):
            await session.flush([wallet])
        await session.commit()
    assert await bank.outbox() == ["1 ada"]
