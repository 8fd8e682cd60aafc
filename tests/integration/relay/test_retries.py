"""Failures are tried again by schedule, and end as dead letters that hold back only what they must (R7)."""

from __future__ import annotations

import logging
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.outbox.limits import ERROR_CHARACTERS_MAX
from outbox_kernel.kernel import EXPONENTIAL, TIERED, RetrySchedule
from outbox_kernel.kernel.errors import Reject, RetryAfter
from tests.relaying import Recorder, Stage, handler

QUICK = RetrySchedule((10,), dead_at=2, jitter_share=0)


async def test_a_failure_is_tried_again_by_its_schedule(stage: Stage) -> None:
    """K7, R7."""
    seen = Recorder().fail("a", times=99)
    schedule = RetrySchedule((10, 100), jitter_share=0)
    await stage.put("a")
    for at, runs in ((0, 1), (9, 1), (10, 2), (109, 2), (110, 3)):
        await stage.drain(handler("h", seen, retry=schedule), at=at)
        assert (at, len(seen.seen)) == (at, runs)
    assert (await stage.delivery("a", "h"))["attempts"] == 3
    row = await stage.status("a")
    assert (row["status"], row["retry_count"], row["error_message"]) == ("open", 3, "ValueError: no a today")


async def test_the_log_says_in_how_long_in_digits_that_a_person_reads(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R7: the jitter has many more."""
    await stage.put("a")
    schedule = RetrySchedule((1.039_771,), jitter_share=0)
    await stage.drain(handler("h", Recorder().fail("a"), retry=schedule))
    [failed] = [record for record in caplog.records if getattr(record, "action", "") == "handler.failed"]
    assert " and is tried again in 1.04 s: " in failed.getMessage()


async def test_a_schedule_without_delays_tries_again_at_once(stage: Stage) -> None:
    """K7: the first three of TIERED."""
    seen = Recorder().fail("a", times=3)
    await stage.put("a")
    await stage.drain(handler("h", seen, retry=TIERED))
    assert len(seen.seen) == 4
    assert await stage.events() == {"a": "delivered"}


async def test_success_after_failures_leaves_no_error(stage: Stage) -> None:
    """R7."""
    await stage.put("a")
    seen = Recorder().fail("a")
    await stage.drain(handler("h", seen))
    await stage.drain(handler("h", seen), at=10)
    row = await stage.status("a")
    assert (row["status"], row["retry_count"], row["error_message"]) == ("delivered", 1, None)
    assert row["processed_at"] == stage.at(10)


async def test_the_last_failure_is_a_dead_letter_and_a_critical_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """R7."""
    seen = Recorder().fail("a", times=9)
    await stage.put("a")
    await stage.drain(handler("h", seen, retry=QUICK))
    await stage.drain(handler("h", seen, retry=QUICK), at=10)
    await stage.drain(handler("h", seen, retry=QUICK), at=9999)
    assert len(seen.seen) == 2
    assert await stage.events() == {"a": "dead"}
    assert await stage.deliveries() == {("a", "h"): "dead"}
    [critical] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert (critical.__dict__["handler"], critical.__dict__["attempts"]) == ("h", 2)
    assert critical.__dict__["event_id"] == str((await stage.event("a"))["event_id"])


@pytest.mark.parametrize("retry", [QUICK, RetrySchedule.bounded(1)], ids=["tried again", "dead"])
async def test_the_log_names_handler_and_event_in_its_words(
    stage: Stage, caplog: pytest.LogCaptureFixture, retry: RetrySchedule
) -> None:
    """O4: an application that hosts a relay shows the words, and nothing of what `extra` has."""
    await stage.put("a")
    await stage.drain(handler("shop.Pack", Recorder().fail("a"), retry=retry))
    [record] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    event_id = (await stage.event("a"))["event_id"]
    assert f"bank.noted {event_id}" in record.getMessage()
    assert "handler shop.Pack " in record.getMessage()
    assert "ValueError: no a today" in record.getMessage()
    assert record.exc_info is not None


@pytest.mark.parametrize("said", [Reject("no such customer"), RetryAfter(30, "the shop is closed")])
async def test_what_a_handler_says_on_purpose_is_logged_with_its_reason_and_no_traceback(
    stage: Stage, caplog: pytest.LogCaptureFixture, said: Exception
) -> None:
    """K5."""
    await stage.put("a")
    await stage.drain(handler("shop.Pack", Recorder().fail("a", said)))
    [record] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert str(said) in record.getMessage()
    assert record.exc_info is None


async def test_handlers_are_dead_after_ten_failures_unless_told_otherwise(stage: Stage) -> None:
    """R7, R15."""
    seen = Recorder().fail("a", times=99)
    await stage.put("a")
    for n in range(12):
        await stage.drain(handler("h", seen), at=n * 1000)
    assert len(seen.seen) == 10
    other = Recorder().fail("b", times=99)
    await stage.put("b")
    for n in range(3):
        await stage.drain(handler("i", other), at=20_000 + n * 10, retries_max=2)
    assert other.seen == ["a", "b", "b"]


async def test_a_dead_letter_parks_what_follows_for_that_handler_alone(stage: Stage) -> None:
    """R7: others, and other aggregates, go on."""
    wallet = uuid4()
    bad, good = Recorder().fail("a", Reject("never")), Recorder()
    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("bad", bad), handler("good", good))
    await stage.put("c", of=wallet)
    await stage.put("d", of=uuid4())
    await stage.drain(handler("bad", bad), handler("good", good), at=9999)
    assert (bad.seen, good.seen) == (["a", "d"], ["a", "b", "c", "d"])
    assert await stage.events() == {"a": "dead", "b": "open", "c": "open", "d": "delivered"}
    assert await stage.deliveries() == {
        ("a", "bad"): "dead",
        ("b", "bad"): "waiting",
        ("c", "bad"): "waiting",
    }
    assert await stage.receipts() == []


async def test_what_is_parked_goes_on_when_the_dead_letter_is_settled(stage: Stage) -> None:
    """R7: nobody needs to wake it."""
    seen, wallet = Recorder().fail("a", Reject("never")), uuid4()
    await stage.put("a", "b", "c", of=wallet)
    await stage.drain(handler("h", seen))
    await stage.witness.execute("UPDATE outbox_deliveries SET status = 'skipped' WHERE status = 'dead'")
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a", "b", "c"]


@pytest.mark.parametrize("first_pass", [True, False])
async def test_a_handler_that_continues_passes_its_dead_letter(stage: Stage, first_pass: bool) -> None:
    """R6, R7: with a receipt, so that no late run of it can commit after those of later events."""
    seen, wallet = Recorder(), uuid4()
    seen.fail("a", *([] if first_pass else [ValueError("once")]), Reject("never"))
    await stage.put("a", "b", of=wallet)
    for at in (0, 10):
        await stage.drain(handler("h", seen, on_dead="continue"), at=at)
    assert seen.seen == (["a", "b"] if first_pass else ["a", "a", "b"])
    assert await stage.events() == {"a": "dead", "b": "delivered"}
    assert await stage.receipts() == [("a", "h", "skipped")]
    await stage.put("c", of=wallet)
    await stage.drain(handler("h", seen, on_dead="continue"), at=20)
    assert seen.seen[-1] == "c"


async def test_what_passes_a_dead_letter_waits_until_that_is_written(stage: Stage) -> None:
    """R6: a crash between the two would run the dead one again, after what had passed it."""
    wallet, receipts = uuid4(), []

    async def act(event: Any) -> None:
        if event.what == "a":
            raise Reject("never")
        receipts.append(await stage.receipts())

    await stage.put("a", "b", of=wallet)
    await stage.drain(handler("h", act, on_dead="continue"))
    assert receipts == [[("a", "h", "skipped")]]


async def test_a_rejected_event_is_dead_at_once(stage: Stage) -> None:
    """K5."""
    seen = Recorder().fail("a", Reject("a wrong account"))
    await stage.put("a")
    await stage.drain(handler("h", seen, retry=EXPONENTIAL))
    delivery = await stage.delivery("a", "h")
    assert (delivery["status"], delivery["attempts"]) == ("dead", 1)
    assert (await stage.status("a"))["error_message"] == "Reject: a wrong account"


async def test_a_handler_says_when_to_try_again(stage: Stage) -> None:
    """K5."""
    seen = Recorder().fail("a", RetryAfter(500))
    await stage.put("a")
    for at, runs in ((0, 1), (499, 1), (500, 2)):
        await stage.drain(handler("h", seen), at=at)
        assert (at, len(seen.seen)) == (at, runs)


async def test_asking_for_a_later_attempt_is_a_failure_all_the_same(stage: Stage) -> None:
    """K5, R7: at the limit it is dead."""
    seen = Recorder().fail("a", RetryAfter(1), RetryAfter(1))
    await stage.put("a")
    await stage.drain(handler("h", seen, retry=QUICK))
    await stage.drain(handler("h", seen, retry=QUICK), at=10)
    assert await stage.events() == {"a": "dead"}


@pytest.mark.parametrize("seconds", [1e18, 1e300, Decimal(10) ** 12])
async def test_a_wait_beyond_all_calendars_stops_nobody(stage: Stage, seconds: float) -> None:
    """R5: the database could not store such a time."""
    seen = Recorder().fail("a", RetryAfter(seconds))
    await stage.put("a", "b")
    await stage.drain(handler("h", seen))
    assert await stage.events() == {"a": "open", "b": "delivered"}
    assert await stage.deliveries() == {("a", "h"): "waiting"}


async def test_the_newest_error_of_an_event_is_shown(stage: Stage) -> None:
    """S: error_message and retry_count of the event."""
    first = Recorder().fail("a", times=1)
    second = Recorder().fail("a", times=3)
    await stage.put("a")
    for at in (0, 10, 20):
        await stage.drain(handler("first", first), handler("second", second), at=at)
    row = await stage.status("a")
    assert (row["status"], row["retry_count"], row["error_message"]) == ("open", 3, "ValueError: no a today")


@pytest.mark.parametrize(
    "error", [ValueError("x" * 50_000_000), Reject("x" * 50_000_000)], ids=["raised", "said"]
)
async def test_an_error_of_fifty_megabytes_is_kept_in_short_and_holds_up_nobody(
    stage: Stage, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """R5, R12: nor does its text fill the database, or a log of the application's own, which cuts nothing."""
    seen, other = Recorder().fail("a", error), Recorder()
    await stage.put("a", of=uuid4())
    await stage.put("b", of=uuid4())
    await stage.drain(handler("h", seen), handler("i", other))
    assert ({*seen.seen}, {*other.seen}) == ({"a", "b"}, {"a", "b"})
    kept = await stage.witness.fetchval("SELECT error_message FROM outbox_deliveries WHERE handler = 'h'")
    assert "xxx" in kept
    assert len(kept) <= ERROR_CHARACTERS_MAX
    assert "xxx" in caplog.text
    assert len(caplog.text) < 50_000
