"""C2: whatever an aggregate recorded or the bus emitted is in the outbox when the state commits."""

from __future__ import annotations

import gc
from uuid import uuid4
from weakref import ref

import pytest
from sqlalchemy import event, insert
from sqlalchemy.orm import Session

from outbox_kernel.infrastructure.outbox.session import CapturedSession
from tests.bank import Bank, loaded
from tests.domain import Announced, Entry, Wallet, journal


@pytest.mark.servers
async def test_an_event_is_stored_though_no_other_attribute_changed(bank: Bank) -> None:
    """C2: an aggregate records an event and changes no other attribute."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        (await loaded(session, wallet_id)).note("seen")
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 seen"]
    assert await bank.row(wallet_id) == (0, 2)


@pytest.mark.servers
async def test_an_event_after_the_last_explicit_flush_is_stored(bank: Bank) -> None:
    """C2: the event comes after the last explicit flush, of a new aggregate and of a loaded one."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        old, new = await loaded(session, wallet_id), Wallet.open("bob")
        session.add(new)
        old.pay(1)
        await session.flush()
        old.note("old")
        new.note("new")
        await session.commit()
    assert await bank.stream(old.id) == ["1 ada", "2 1", "3 old"]
    assert await bank.stream(new.id) == ["1 bob", "2 new"]


@pytest.mark.servers
async def test_an_event_is_stored_though_only_a_child_changed(bank: Bank) -> None:
    """C2: only a child entity changed, and the root recorded it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        (await loaded(session, wallet_id)).enter("rent")
        await session.commit()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.entries[0].text = "rent of May"
        wallet.note("corrected")
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 rent", "3 corrected"]
    assert await bank.entries(wallet_id) == ["rent of May"]


async def test_a_child_that_leaves_its_root_is_deleted_with_the_event_that_tells_of_it(bank: Bank) -> None:
    """C2: removed from the list, then replaced as a whole, then gone with the root."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.enter("rent")
        wallet.enter("food")
        await session.commit()
        wallet.entries.remove(wallet.entries[0])
        wallet.note("rent removed")
        await session.commit()
        assert await bank.entries(wallet_id) == ["food"]
        wallet.entries = [Entry("all"), Entry("new")]
        wallet.note("replaced")
        await session.commit()
        assert sorted(await bank.entries(wallet_id)) == ["all", "new"]
        wallet.note("closed")
        await session.delete(wallet)
        await session.commit()
    assert await bank.entries(wallet_id) == []
    told = ["1 ada", "2 rent", "3 food", "4 rent removed", "5 replaced", "6 closed"]
    assert await bank.stream(wallet_id) == told


async def test_children_of_a_new_root_are_new_again_with_it(bank: Bank) -> None:
    """C3b: what a rollback makes new again is added with all that it holds."""
    async with bank.session() as session:
        wallet = Wallet.open()
        wallet.enter("rent")
        session.add(wallet)
        await session.flush()
        wallet.enter("food")
        await session.flush()
        await session.rollback()
        session.add(wallet)
        await session.commit()
    assert sorted(await bank.entries(wallet.id)) == ["food", "rent"]
    assert await bank.stream(wallet.id) == ["1 ada", "2 rent", "3 food"]


@pytest.mark.servers
async def test_an_event_is_stored_though_nobody_holds_the_aggregate_any_more(bank: Bank) -> None:
    """C2: the last reference to the aggregate is dropped before the commit, new or loaded."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        old, new = await loaded(session, wallet_id), Wallet.open("bob")
        session.add(new)
        await session.flush()
        old.note("dropped")
        new.note("dropped")
        new_id, alive = new.id, ref(new)
        del old, new
        gc.collect()
        assert alive() is not None
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 dropped"]
    assert await bank.stream(new_id) == ["1 bob", "2 dropped"]


async def test_events_flushed_before_the_aggregate_was_collected_stay_stored(bank: Bank) -> None:
    """C2: the garbage collector may take a flushed aggregate; its rows are written."""
    async with bank.session() as session:
        wallet = Wallet.open()
        session.add(wallet)
        await session.flush()
        wallet_id, alive = wallet.id, ref(wallet)
        del wallet
        gc.collect()
        assert alive() is None
        again = await loaded(session, wallet_id)
        again.note("again")
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 again"]


@pytest.mark.servers
async def test_the_events_of_a_deleted_aggregate_are_stored(bank: Bank) -> None:
    """C2: the aggregate is deleted; what it recorded before and after `delete` outlives its row."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        wallet.note("before")
        await session.delete(wallet)
        wallet.note("farewell")
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 before", "3 farewell"]
    assert await bank.row(wallet_id) is None


async def test_the_events_of_an_aggregate_deleted_unchanged_stay_stored(bank: Bank) -> None:
    """C2: a deletion without an event takes no event away."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        await session.delete(await loaded(session, wallet_id))
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada"]


async def test_the_events_of_an_aggregate_born_and_deleted_at_once_are_stored(bank: Bank) -> None:
    """C2: inserted and deleted in one transaction, an aggregate has still told its story."""
    async with bank.session() as session:
        wallet = Wallet.open()
        session.add(wallet)
        await session.flush()
        await session.delete(wallet)
        wallet.note("short life")
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 short life"]


@pytest.mark.servers
async def test_a_bus_event_alone_is_stored_by_the_commit_of_a_clean_session(bank: Bank) -> None:
    """C2: the session is clean and the only change is a bus event."""
    async with bank.session() as session:
        bank.emit(session, "alone")
        await session.commit()
    assert await bank.outbox() == ["- alone"]


@pytest.mark.servers
async def test_a_bus_event_is_stored_with_core_statements_and_nothing_else(bank: Bank) -> None:
    """C2: the session is clean but for Core statements, before and after the event."""
    async with bank.session() as session:
        await session.execute(insert(journal).values(line="before"))
        bank.emit(session, "between")
        await session.execute(insert(journal).values(line="after"))
        await session.commit()
    assert await bank.outbox() == ["- between"]
    assert await bank.journal() == ["before", "after"]


async def test_core_statements_alone_commit_and_write_no_event(bank: Bank) -> None:
    """C2: capture stands in nobody's way."""
    async with bank.session() as session:
        await session.execute(insert(journal).values(line="alone"))
        await session.commit()
    assert await bank.journal() == ["alone"]
    assert await bank.outbox() == []


async def test_a_bus_event_may_be_the_only_content_of_a_savepoint(bank: Bank) -> None:
    """C2: a savepoint is a transaction too."""
    async with bank.session() as session:
        async with session.begin_nested():
            bank.emit(session, "inside")
        await session.commit()
    assert await bank.outbox() == ["- inside"]


async def test_every_transaction_of_a_session_stores_its_own_events(bank: Bank) -> None:
    """C2: a session serves many transactions."""
    wallet = Wallet.open()
    async with bank.session() as session:
        session.add(wallet)
        await session.commit()
        wallet.note("second")
        bank.emit(session, "second")
        await session.commit()
        bank.emit(session, "third")
        await session.commit()
    assert await bank.outbox() == ["1 ada", "2 second", "- second", "- third"]


@pytest.mark.servers
async def test_a_begin_block_commits_events_as_commit_does(bank: Bank) -> None:
    """C2: `async with session.begin()` commits through the transaction, past the session's own commit."""
    wallet_id = await bank.open_wallet()
    async with bank.sessions.begin() as session:
        (await loaded(session, wallet_id)).note("noted")
        bank.emit(session, "announced")
    async with bank.session() as session, session.begin():
        bank.emit(session, "alone")
    assert await bank.outbox() == ["1 ada", "2 noted", "- announced", "- alone"]


@pytest.mark.parametrize("moment", ["before_flush", "after_flush", "before_commit"])
async def test_what_a_later_listener_emits_is_stored(bank: Bank, moment: str) -> None:
    """C2: a bus event is emitted by a listener that runs after capture's own."""
    async with bank.session() as session:

        def emit(sync_session: CapturedSession, *_: object) -> None:
            sync_session.outbox.emit(Announced(f"from {moment}"))

        session.add(Wallet.open())
        event.listen(session.sync_session, moment, emit, once=True)
        await session.commit()
    assert await bank.outbox() == ["1 ada", f"- from {moment}"]


@pytest.mark.parametrize("moment", ["before_flush", "before_commit"])
async def test_what_a_later_listener_emits_beside_a_bus_event_alone_is_stored(
    bank: Bank, moment: str
) -> None:
    """C2: such a flush has nothing for the ORM to write and ends before `after_flush`."""
    async with bank.session() as session:

        def emit(sync_session: CapturedSession, *_: object) -> None:
            sync_session.outbox.emit(Announced(f"from {moment}"))

        bank.emit(session, "first")
        event.listen(session.sync_session, moment, emit, once=True)
        await session.commit()
    assert await bank.outbox() == ["- first", f"- from {moment}"]


@pytest.mark.parametrize("moment", ["before_flush", "after_flush"])
async def test_a_listener_that_emits_at_each_flush_ends(bank: Bank, moment: str) -> None:
    """C2: what is emitted inside a flush is part of it, and asks for no further flush."""
    async with bank.session() as session:

        def emit(sync_session: CapturedSession, *_: object) -> None:
            sync_session.outbox.emit(Announced(f"from {moment}"))

        event.listen(session.sync_session, moment, emit)
        session.add(Wallet.open())
        await session.commit()
        bank.emit(session, "alone")
        await session.commit()
    stored = await bank.outbox()
    assert stored[:2] == ["1 ada", f"- from {moment}"]
    assert stored[2:] == (["- alone", f"- from {moment}"] if moment == "before_flush" else ["- alone"])


@pytest.mark.parametrize("stored_before", [True, False])
async def test_what_a_later_before_flush_listener_records_is_stored(bank: Bank, stored_before: bool) -> None:
    """C2: an aggregate's event is recorded by another `before_flush` listener after capture's own."""
    async with bank.session() as session:
        wallet = Wallet.open()
        session.add(wallet)
        if stored_before:
            await session.commit()
        wallet.note("first")

        def record(*_: object) -> None:
            wallet.note("late")

        event.listen(session.sync_session, "before_flush", record, once=True)
        await session.commit()
    assert await bank.stream(wallet.id) == ["1 ada", "2 first", "3 late"]
    assert await bank.row(wallet.id) == (0, 3)


async def test_what_a_later_before_flush_listener_records_of_a_deletion_is_stored(bank: Bank) -> None:
    """C2: the row is gone by then, so that nothing there need be told of the event."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
        await session.delete(wallet)
        event.listen(session.sync_session, "before_flush", lambda *_: wallet.note("farewell"), once=True)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 farewell"]
    assert await bank.row(wallet_id) is None


async def test_what_a_listener_writes_on_the_connection_of_a_flush_goes_with_it(bank: Bank) -> None:
    """C1: it is committed with the events, and undone with them."""

    def write(session: Session, *_: object) -> None:
        session.connection().execute(insert(journal).values(line="beside"))

    async with bank.session() as session:
        event.listen(session.sync_session, "before_flush", write)
        session.add(Wallet.open("never"))
        await session.flush()
        await session.rollback()
        session.add(Wallet.open("eve"))
        await session.commit()
    assert (await bank.outbox(), await bank.journal()) == (["1 eve"], ["beside"])


async def test_an_aggregate_that_a_later_before_flush_listener_adds_has_its_events_stored(bank: Bank) -> None:
    """C2: the aggregate itself came into the session after capture had looked."""
    added = Wallet.open("late")
    async with bank.session() as session:
        event.listen(
            session.sync_session, "before_flush", lambda *_: session.sync_session.add(added), once=True
        )
        session.add(Wallet.open())
        await session.commit()
    assert await bank.outbox() == ["1 ada", "1 late"]


async def test_a_before_update_hook_may_still_record(bank: Bank) -> None:
    """C2: the row is not yet written, so the event can be in it."""
    wallet_id = await bank.open_wallet()

    def record(_: object, __: object, wallet: Wallet) -> None:
        wallet.note("hooked")

    event.listen(Wallet, "before_update", record)
    try:
        async with bank.session() as session:
            (await loaded(session, wallet_id)).pay(1)
            await session.commit()
    finally:
        event.remove(Wallet, "before_update", record)
    assert await bank.stream(wallet_id) == ["1 ada", "2 1", "3 hooked"]
    assert await bank.row(wallet_id) == (1, 3)


async def test_positions_follow_the_order_of_recording_over_aggregates_and_bus(bank: Bank) -> None:
    """C1: a flush plan is built from sets, the rows are not."""
    async with bank.session() as session:
        wallets = [Wallet(uuid4(), f"w{number}") for number in range(9)]
        session.add_all(wallets)
        expected = []
        for turn in range(5):
            for place in (4, 7, 1, 8, 0, 3, 6, 2, 5):
                wallets[place].note(f"{turn}.{place}")
                bank.emit(session, f"{turn}.{place}")
                expected += [f"{turn + 1} {turn}.{place}", f"- {turn}.{place}"]
        await session.commit()
    assert await bank.outbox() == expected


async def test_a_session_that_expires_on_commit_loses_nothing(bank: Bank) -> None:
    """C2: adopters' sessions keep SQLAlchemy's default."""
    async with bank.session(expire_on_commit=True) as session:
        wallet = Wallet.open()
        wallet_id = wallet.id
        session.add(wallet)
        await session.commit()
        await session.refresh(wallet)
        wallet.note("second")
        await session.commit()
        assert wallet.recorded_events == ()
    assert await bank.stream(wallet_id) == ["1 ada", "2 second"]


async def test_an_aggregate_changed_while_detached_has_its_events_stored_by_its_next_session(
    bank: Bank,
) -> None:
    """C2: between two sessions an aggregate belongs to nobody, and its events stay with it."""
    wallet_id = await bank.open_wallet()
    async with bank.session() as session:
        wallet = await loaded(session, wallet_id)
    wallet.pay(5)
    async with bank.session() as session:
        session.add(wallet)
        await session.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 5"]
    assert await bank.row(wallet_id) == (5, 2)


async def test_an_aggregate_outlives_a_session_that_was_never_closed(bank: Bank) -> None:
    """C2: a session may be collected while its aggregates live on."""
    wallet_id = await bank.open_wallet()
    session = bank.sessions()
    wallet = await loaded(session, wallet_id)
    await session.commit()
    del session
    gc.collect()
    wallet.pay(5)
    async with bank.session() as second:
        second.add(wallet)
        await second.commit()
    assert await bank.stream(wallet_id) == ["1 ada", "2 5"]
