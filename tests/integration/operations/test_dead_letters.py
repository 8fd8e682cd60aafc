"""Dead letters are counted by what they died of, and let run again or let go as they are meant (O3, R7)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from uuid import UUID, uuid4

import pytest

from outbox_kernel.infrastructure.operations import dead_letters as module
from outbox_kernel.infrastructure.operations.dead_letters import (
    Matching,
    Meant,
    Mended,
    chosen_of,
    count_of,
    groups,
    letters,
    matching,
    retry_meant,
    skip_meant,
)
from outbox_kernel.infrastructure.operations.limits import WORK_SECONDS_MAX
from outbox_kernel.infrastructure.operations.selection import AggregateKey, Moment
from tests.integration.operations.conftest import HANDLER, Outbox

ALL = Meant(handler=HANDLER)
HALF_DONE = "SecondCommit: two commits"


async def statuses(outbox: Outbox) -> list[str]:
    return [row[0] for row in await outbox.rows("SELECT status FROM outbox_deliveries ORDER BY position")]


async def dead(outbox: Outbox, *errors: str | None, handler: str = HANDLER) -> list[UUID]:
    return [await outbox.failed_event(error=error, handler=handler) for error in errors]


async def test_those_that_died_of_the_same_are_one_group_whatever_numbers_are_in_it(outbox: Outbox) -> None:
    await dead(
        outbox,
        f"KeyError: order {uuid4()} of 12",
        f"KeyError: order {uuid4()} of 7",
        "S3Error: gave 503",
        "S3Error: gave 500\nand a second line 4",
        None,
    )
    await dead(outbox, "KeyError: order 1 of 2", handler="bank.Other")
    await outbox.failed_event(status="waiting")
    found = await groups(outbox.desk, groups_max=10)
    assert [(each.handler, each.kind, each.deliveries) for each in found] == [
        (HANDLER, "KeyError: order * of *", 2),
        (HANDLER, "S3Error: gave *", 2),
        (HANDLER, "", 1),
        ("bank.Other", "KeyError: order * of *", 1),
    ]
    assert found[1].error_message == "S3Error: gave 500\nand a second line 4"
    assert found[0].first_at <= found[0].updated_at
    assert [each.handler for each in await groups(outbox.desk, handler="bank.Other", groups_max=10)] == [
        "bank.Other"
    ]
    assert len(await groups(outbox.desk, groups_max=2)) == 2


async def test_letters_are_listed_in_the_order_of_their_turns_page_by_page(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LETTERS_MAX", 2)
    events = await dead(outbox, *["E: 1", "F: 1"] * 2, "E: 1")
    found, seen = await letters(outbox.desk, ALL), []
    while True:
        seen += [each.event_id for each in found.letters]
        if found.next is None:
            break
        found = await letters(outbox.desk, ALL, found.next)
    assert seen == events
    of_kind = await letters(outbox.desk, Meant(handler=HANDLER, kind="E: *"))
    assert [each.event_id for each in of_kind.letters] == [events[0], events[2]]
    assert await count_of(outbox.desk, HANDLER) == 5
    assert await count_of(outbox.desk, HANDLER, "E: *") == 3


async def test_a_letter_says_how_many_stand_behind_it(outbox: Outbox) -> None:
    wallet = uuid4()
    await outbox.failed_event(wallet)
    for _ in range(2):
        await outbox.failed_event(wallet, "waiting", attempts=0)
    [letter] = (await letters(outbox.desk, ALL)).letters
    assert (letter.behind, letter.attempts, letter.half_done, letter.settled) == (2, 3, False, False)
    assert (letter.aggregate_type, letter.aggregate_id) == ("bank.wallet", wallet)


async def test_a_filter_may_ask_of_the_events_too(outbox: Outbox) -> None:
    wallet = uuid4()
    mine = await outbox.failed_event(wallet)
    other = await outbox.event(event_type="bank.other")
    await outbox.delivery(other)
    for meant, wanted in (
        (Meant(handler=HANDLER, aggregate=AggregateKey(wallet)), [mine]),
        (Meant(handler=HANDLER, event_type="bank.o*"), [other]),
        (Meant(handler=HANDLER, since=Moment.parse("1h")), [mine, other]),
        (Meant(handler=HANDLER, since=Moment.parse("9999-01-01")), []),
        (Meant(handler=HANDLER, event_type="bank.o*", aggregate=AggregateKey(wallet)), []),
    ):
        assert meant.asks_of_events
        assert [each.event_id for each in (await letters(outbox.desk, meant)).letters] == wanted
        assert await matching(outbox.desk, meant) == Matching(len(wanted))


async def test_where_few_match_so_many_are_looked_at_and_the_next_page_goes_on(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_MAX", 3)
    await dead(outbox, *["E"] * 4)
    await outbox.delivery(wanted := await outbox.event(event_type="bank.other"))
    meant = Meant(handler=HANDLER, event_type="bank.other")
    first = await letters(outbox.desk, meant)
    assert (first.letters, first.looked_at) == ([], 3)
    assert await matching(outbox.desk, meant) == Matching(0, is_at_least=True)
    second = await letters(outbox.desk, meant, first.next or 0)
    assert [each.event_id for each in second.letters] == [wanted]
    assert second.next is None
    assert await matching(outbox.desk, ALL) == Matching(5)


@pytest.mark.parametrize("batch_max", [1, 2, 500])
async def test_all_that_is_meant_runs_again(
    outbox: Outbox, batch_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_MAX", batch_max)
    await dead(outbox, "E: 1", "F", "E: 2", "E: 3")
    await dead(outbox, "E: 1", handler="bank.Other")
    meant = Meant(handler=HANDLER, kind="E: *")
    assert await retry_meant(outbox.desk, meant) == Mended(3, 0, 0, is_over=True)
    assert await statuses(outbox) == ["waiting", "dead", "waiting", "waiting", "dead"]
    assert await retry_meant(outbox.desk, meant) == Mended(0, 0, 0, is_over=True)


@pytest.mark.parametrize("batch_max", [1, 2, 500])
async def test_all_that_is_meant_is_let_go_the_last_first(
    outbox: Outbox, batch_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_MAX", batch_max)
    events = await dead(outbox, *["E"] * 4)
    await outbox.execute("CREATE TABLE trail (event_id uuid, number serial)")
    await outbox.execute(
        """
        CREATE FUNCTION trace() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO trail (event_id) VALUES (new.event_id); RETURN new; END $$;
        CREATE TRIGGER trace AFTER UPDATE ON outbox_deliveries FOR EACH ROW EXECUTE FUNCTION trace()
        """
    )
    try:
        assert await skip_meant(outbox.desk, ALL) == Mended(4, 0, 0, is_over=True)
        trail = [row[0] for row in await outbox.rows("SELECT event_id FROM trail ORDER BY number")]
    finally:
        await outbox.execute("DROP TRIGGER trace ON outbox_deliveries; DROP FUNCTION trace; DROP TABLE trail")
    assert await statuses(outbox) == ["skipped"] * 4
    if batch_max == 1:
        assert trail == events[::-1]
    assert len(await outbox.receipts()) == 4


async def test_what_is_half_done_is_left_unless_its_effect_is_to_happen_again(outbox: Outbox) -> None:
    [half, _] = await dead(outbox, HALF_DONE, "E")
    await outbox.receipt(half)
    assert (await letters(outbox.desk, ALL)).letters[0].half_done
    of_type = Meant(handler=HANDLER, event_type="bank.*")
    assert (
        await matching(outbox.desk, ALL) == await matching(outbox.desk, of_type) == Matching(2, half_done=1)
    )
    assert await retry_meant(outbox.desk, ALL) == Mended(1, 1, 0, is_over=True)
    assert await statuses(outbox) == ["dead", "waiting"]
    assert await retry_meant(outbox.desk, ALL, again=True) == Mended(1, 0, 0, is_over=True)
    assert await statuses(outbox) == ["waiting", "waiting"]
    assert await outbox.receipts() == []


def ticking() -> Iterator[float]:
    """A clock by which each batch takes half of all the time."""
    yield from (WORK_SECONDS_MAX / 2 * number for number in count())


async def test_what_there_was_no_time_for_is_said_and_the_next_time_goes_on(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_MAX", 2)
    await dead(outbox, *["E"] * 5)
    clock = ticking()
    assert await retry_meant(outbox.desk, ALL, now=lambda: next(clock)) == Mended(2, 0, 0, is_over=False)
    assert await statuses(outbox) == ["waiting", "waiting", "dead", "dead", "dead"]
    assert (await retry_meant(outbox.desk, ALL)).changed == 3


async def test_what_was_chosen_is_found_unless_it_lives_again(outbox: Outbox) -> None:
    first, second, third = await dead(outbox, "E", "E", "E")
    await outbox.execute("UPDATE outbox_deliveries SET status = 'done' WHERE event_id = $1", second)
    found = await chosen_of(outbox.desk, HANDLER, [third, second, first])
    assert [each.event_id for each in found] == [first, third]
    assert await chosen_of(outbox.desk, "bank.Other", [first]) == []
