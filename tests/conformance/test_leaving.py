"""What leaving a block would lose in silence is said in a warning, once, at the place where it is left (C8)."""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

import pytest

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.kernel import UnitOfWork
from outbox_kernel.kernel.errors import UncommittedWork
from tests.conformance.adapters import Adapter
from tests.conformance.wallets import Announced, Wallet

HERE = Path(__file__).name


async def loaded(uow: UnitOfWork, adapter: Adapter, wallet_id: UUID) -> Wallet:
    wallet = await uow.repository(adapter.wallet).get(wallet_id)
    assert wallet is not None
    return wallet


def line_of(text: str) -> int:
    """The number of the one line of this file that ends with a mark."""
    [number] = [
        number
        for number, line in enumerate(Path(__file__).read_text().splitlines(), 1)
        if line.endswith(text)
    ]
    return number


async def test_events_left_without_a_commit_are_told_once_at_the_block(adapter: Adapter) -> None:
    """C8: by the names of their classes, with what to do."""
    with pytest.warns(UncommittedWork) as told:
        async with adapter.unit_of_work() as uow:  # the block that is left
            wallet = adapter.wallet.open()
            uow.repository(adapter.wallet).add(wallet)
            wallet.pay(1)
            wallet.pay(2)
            uow.emit(Announced("lost"))
    [warning] = told
    assert str(warning.message) == (
        "a unit of work was left without a commit, so these events are gone with the changes they tell of: "
        f"{', '.join(sorted(['Announced', 'Opened', 'Paid'], key=str(warning.message).index))}; end its block with "
        "`await uow.commit()`, or with `await uow.rollback()` where that is meant"
    )
    assert (Path(warning.filename).name, warning.lineno) == (HERE, line_of("# the block that is " + "left"))


@pytest.mark.parametrize("what", ["record", "emit"])
async def test_events_after_the_last_commit_are_told(adapter: Adapter, what: str) -> None:
    """C8."""
    wallet_id = await adapter.given()
    with pytest.warns(
        UncommittedWork, match="without a commit of what it recorded since the last one"
    ) as told:
        async with adapter.unit_of_work() as uow:
            wallet = await loaded(uow, adapter, wallet_id)
            wallet.pay(1)
            await uow.commit()
            if what == "record":
                wallet.pay(2)
            else:
                uow.emit(Announced("late"))
    assert len(told) == 1
    assert await adapter.numbers() == [1, 2]


async def test_events_that_a_query_has_let_be_written_are_told_as_well(adapter: Adapter) -> None:
    """C8: nobody holds them any more."""
    wallet_id = await adapter.given()
    with pytest.warns(UncommittedWork, match="left without a commit"):
        async with adapter.unit_of_work() as uow:
            uow.emit(Announced("written"))
            await loaded(uow, adapter, wallet_id)
            await uow.repository(adapter.wallet).remove(await loaded(uow, adapter, wallet_id))


async def test_an_aggregate_that_nobody_has_added_is_told_once_at_the_block(adapter: Adapter) -> None:
    """C8: though the block ends with a commit, and whoever made the aggregate holds it no longer."""

    async def use_case() -> UUID:
        wallet = adapter.wallet.open()
        wallet.pay(1)
        return wallet.id

    with pytest.warns(UncommittedWork, match="was never added to it, so nothing of it is stored") as told:
        async with adapter.unit_of_work() as uow:  # nobody has added
            wallet_id = await use_case()
            await uow.commit()
    [warning] = told
    assert str(wallet_id) in str(warning.message)
    assert (Path(warning.filename).name, warning.lineno) == (HERE, line_of("# nobody has " + "added"))


async def test_an_aggregate_of_an_earlier_block_that_nobody_has_added_to_this_one_is_told(
    adapter: Adapter,
) -> None:
    """C8: it was loaded there, and is changed here."""
    wallet_id = await adapter.given()
    async with adapter.unit_of_work() as uow:
        wallet = await loaded(uow, adapter, wallet_id)
    with pytest.warns(UncommittedWork, match="was never added"):
        async with adapter.unit_of_work() as uow:
            wallet.pay(1)
            await uow.commit()
    assert await adapter.numbers() == [1]


async def test_of_many_aggregates_the_one_that_nobody_has_added_is_found(adapter: Adapter) -> None:
    """C8: a long import is looked through as it goes."""
    with pytest.warns(UncommittedWork, match="was never added") as told:
        async with adapter.unit_of_work() as uow:
            forgotten = adapter.wallet.open("forgotten")
            for number in range(200):
                wallet = adapter.wallet.open(str(number))
                uow.repository(adapter.wallet).add(wallet)
            await uow.commit()
    [warning] = told
    assert str(warning.message).startswith(f"{forgotten!r} recorded")


async def leave_quietly(adapter: Adapter, wallet_id: UUID) -> None:
    async with adapter.unit_of_work():
        pass
    async with adapter.unit_of_work() as uow:
        await loaded(uow, adapter, wallet_id)
    async with adapter.unit_of_work() as uow:
        (await loaded(uow, adapter, wallet_id)).pay(1)
        await uow.commit()
    async with adapter.unit_of_work() as uow:
        (await loaded(uow, adapter, wallet_id)).pay(2)
        adapter.wallet.open("given up")
        uow.emit(Announced("given up"))
        await uow.rollback()
    with pytest.raises(ZeroDivisionError):
        async with adapter.unit_of_work() as uow:
            (await loaded(uow, adapter, wallet_id)).pay(2)
            adapter.wallet.open("raised")
            _ = 1 / 0
    async with adapter.unit_of_work() as uow:
        wallet = adapter.wallet.open("collected")
        wallet.collect_events()


async def test_nothing_is_said_where_nothing_is_lost_in_silence(adapter: Adapter) -> None:
    """C8: not of a block that only read, committed, rolled back or raised, nor of events that somebody collected."""
    wallet_id = await adapter.given()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncommittedWork)
        await leave_quietly(adapter, wallet_id)
    assert await adapter.numbers() == [1, 2]


async def test_a_commit_that_failed_has_said_what_is_gone(adapter: Adapter) -> None:
    """C8, C4: by the error, which the block may catch."""
    wallet_id = await adapter.given()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncommittedWork)
        async with adapter.unit_of_work() as uow:
            (await loaded(uow, adapter, wallet_id)).pay(1)
            adapter.wallet.open("of the failed attempt")
            async with adapter.unit_of_work() as rival:
                (await loaded(rival, adapter, wallet_id)).pay(2)
                await rival.commit()
            with pytest.raises(ConcurrencyError):
                await uow.commit()


async def test_what_an_inner_block_does_not_know_the_outer_one_may(adapter: Adapter) -> None:
    """C8: an aggregate of the outer block that records in the inner one is nobody's loss; another is told once."""
    wallet_id = await adapter.given()
    with pytest.warns(UncommittedWork, match="was never added") as told:
        async with adapter.unit_of_work() as outer:
            wallet = await loaded(outer, adapter, wallet_id)
            async with adapter.unit_of_work() as inner:
                wallet.pay(1)
                forgotten = adapter.wallet.open("forgotten")
                await inner.commit()
            await outer.commit()
    assert len(told) == 1
    assert repr(forgotten) in str(told[0].message)
    assert await adapter.numbers() == [1, 2]


async def test_a_block_that_is_entered_and_left_by_others_is_told_where_they_are_asked_to(
    adapter: Adapter,
) -> None:
    """C8: in a task of its own, too."""

    async def use_case() -> None:
        async with AsyncExitStack() as stack:  # entered by a stack
            uow = await stack.enter_async_context(adapter.unit_of_work())
            uow.emit(Announced("lost"))

    with pytest.warns(UncommittedWork) as told:
        await asyncio.create_task(use_case())
    [warning] = told
    assert (Path(warning.filename).name, warning.lineno) == (HERE, line_of("# entered by a " + "stack"))


async def test_what_records_after_the_block_is_nobodys(adapter: Adapter) -> None:
    """C8: in a task that has outlived it."""
    left = asyncio.Event()

    async def late() -> Wallet:
        await left.wait()
        return adapter.wallet.open("late")

    async with adapter.unit_of_work() as uow:
        task = asyncio.create_task(late())
        await uow.commit()
    left.set()
    assert (await task).recorded_events


async def test_it_leaves_nothing_in_the_context_of_who_used_it(adapter: Adapter) -> None:
    """R10: or a relay would give each event whose handler uses one a worker of its own."""
    before = contextvars.copy_context()
    async with adapter.unit_of_work() as uow:
        uow.emit(Announced("here"))
        await uow.commit()
    assert contextvars.copy_context() == before
