"""Whoever may publish to a queue tells of any aggregate: its writers here are not held up (C4, T3)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from outbox_kernel.infrastructure.brokers.received import Received
from outbox_kernel.infrastructure.inbox.storing import Storage
from outbox_kernel.infrastructure.operations import Desk, searching, stories
from outbox_kernel.infrastructure.operations.aggregates import Place, events_of, find
from outbox_kernel.infrastructure.operations.limits import AGGREGATE_EVENTS_MAX
from outbox_kernel.infrastructure.operations.selection import AggregateKey
from outbox_kernel.infrastructure.operations.stories import ToldEvent
from tests.domain import Wallet
from tests.relaying import Recorder, Stage, handler
from tests.streams import handle, of

PAYMENTS = 3


async def opened(stage: Stage, wallet: Wallet) -> UUID:
    async with stage.uow() as uow:
        uow.session.add(wallet)
        await uow.commit()
    return wallet.id


async def noted(stage: Stage, wallet: UUID, *whats: str) -> None:
    async with stage.uow() as uow:
        found = await uow.session.get_one(Wallet, wallet)
        for what in whats:
            found.note(what)
        await uow.commit()


def forged(wallet: UUID, number: int) -> Received:
    """An event that says that it is the wallet's."""
    return Received(
        *(uuid4(), "bank.noted", 1, "bank.wallet", wallet, number),
        *('{"what": "forged"}', "{}", datetime.now(UTC), None, None),
    )


async def brought(stage: Stage, queue: str, *events: Received) -> dict[int, str]:
    return await Storage(queue).store(stage.line(), events)


def said(event: ToldEvent) -> str:
    payload: Any = event.payload
    return str(payload["what"])


async def test_who_sends_the_next_number_of_an_aggregate_does_not_hold_up_its_writers(stage: Stage) -> None:
    """Each write of it met a key that was taken, and was told to load it again and retry, for ever."""
    wallet = await opened(stage, Wallet.open())
    numbers, ours, theirs = range(1, 2 + PAYMENTS), Recorder(), Recorder()
    await handle(stage, of("notes", theirs))
    assert await brought(stage, "notes", *(forged(wallet, number) for number in numbers)) == {}
    for what in map(str, range(PAYMENTS)):
        await noted(stage, wallet, what)
    await stage.drain(handler("ours", ours))
    await handle(stage, of("notes", theirs))
    assert (ours.seen, theirs.seen) == (["0", "1", "2"], ["forged"] * len(numbers))


async def test_nor_does_who_sends_the_first_of_one_that_is_yet_to_come(stage: Stage) -> None:
    """Its id may be known before: the next of those that are counted."""
    wallet = Wallet.open()
    assert await brought(stage, "notes", forged(wallet.id, 1)) == {}
    await opened(stage, wallet)


async def test_one_queue_brings_a_number_once_and_keeps_no_other_from_it(stage: Stage) -> None:
    wallet = uuid4()
    assert await brought(stage, "notes", forged(wallet, 1)) == {}
    [refused] = (await brought(stage, "notes", forged(wallet, 1))).values()
    assert refused.startswith(f"another event has number 1 of bank.wallet {wallet}: ")
    assert await brought(stage, "audit", forged(wallet, 1)) == {}


async def test_its_history_has_all_of_it_whatever_numbers_are_sent(stage: Stage) -> None:
    """O3: a page begins behind a number."""
    wallet = await opened(stage, Wallet.open())
    whats = [str(number) for number in range(AGGREGATE_EVENTS_MAX)]
    await noted(stage, wallet, *whats)
    await brought(stage, "notes", forged(wallet, 1), forged(wallet, 2**63 - 2))
    desk = Desk(stage.witness)
    key = AggregateKey.parse(str(wallet))
    [found] = await find(desk, key)
    told: list[str] = []
    place: Place | None = Place()
    while place is not None:
        page = await events_of(desk, found, place)
        told += [said(each) for each in page.events]
        place = page.next
    assert told == ["forged", "forged", *reversed(whats), "ada"]
    sought: list[UUID] = []
    before: int | None = None
    while not sought or before is not None:
        walked = await searching.search(desk, searching.Query(aggregate=key), before)
        sought, before = [*sought, *(each.event_id for each in walked.events)], walked.next
    assert len(sought) == len({*sought}) == len(told)
    history = await stories.history(desk, key)
    assert sorted(said(each) for each in history) == sorted(told)
