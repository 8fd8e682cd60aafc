"""What an operator decides in a browser without scripts: what comes of it, what is told, and what the log has (O3)."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.infrastructure.dashboard import Dashboard
from outbox_kernel.infrastructure.errors import DatabaseUnreachable
from outbox_kernel.infrastructure.operations import dead_letters, subscriptions
from tests.integration.dashboard.conftest import SETTINGS
from tests.integration.operations.conftest import HANDLER, Outbox
from tests.visiting import Page, Visitor, visiting

WHO = "somebody at this machine"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "outbox.dashboard")
    return caplog


def line(told: pytest.LogCaptureFixture, action: str) -> dict[str, Any]:
    """The one line of the log about an action."""
    [record] = [each for each in told.records if getattr(each, "did", "") == action]
    assert record.who == WHO  # type: ignore[attr-defined]
    assert record.client == "127.0.0.1"  # type: ignore[attr-defined]
    return vars(record)


async def statuses(outbox: Outbox) -> list[str]:
    return [row[0] for row in await outbox.rows("SELECT status FROM outbox_deliveries ORDER BY position")]


# --- retry and skip ------------------------------------------------------------------------------------


async def test_a_delivery_is_retried_on_its_events_page(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture
) -> None:
    await outbox.subscription()
    event_id = await outbox.failed_event()
    await outbox.passed()
    page = await visitor.get(f"/events/{event_id}")
    page = await visitor.did(page.form("/do/retry", handler=HANDLER))
    assert "1 delivery retried: a relay runs it at its turn." in page.text
    assert "bank.Letters waiting 0" in page.text
    # What has just been given all its attempts needs no other try.
    assert [form.action for form in page.forms if form.action.endswith("/do/retry")] == []
    assert await statuses(outbox) == ["waiting"]
    said = line(told, "retry")
    assert (said["handler"], said["events"], said["outcome"]) == (HANDLER, [str(event_id)], "done")
    assert (said["changed"], said["left"], said["half_done"], said["again"]) == (1, 0, 0, False)
    # It is told once.
    assert "retried" not in (await visitor.get(f"/events/{event_id}")).text


async def test_beside_a_retry_stands_what_may_happen_twice(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    event_id = await outbox.failed_event()
    await outbox.passed()
    said = "such as charging a card, may happen again"
    assert said in (await visitor.get(f"/events/{event_id}")).text
    assert said in (await visitor.get(f"/confirm/retry?handler={HANDLER}")).text
    await outbox.execute("UPDATE outbox_deliveries SET status = 'done'")
    assert said not in (await visitor.get(f"/events/{event_id}")).text


async def test_what_is_to_be_skipped_may_be_retried_before_it_is(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    event_id = await outbox.failed_event(None, "waiting", attempts=0, error=None)
    await outbox.passed()
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    retries = [form for form in (await visitor.get(f"/events/{event_id}")).forms if "retry" in form.action]
    assert retries == []
    await outbox.receipt(event_id, outcome="skipped")
    page = await visitor.get(f"/events/{event_id}")
    page = await visitor.did(page.form("/do/retry", handler=HANDLER))
    assert "1 delivery retried" in page.text
    assert await outbox.rows("SELECT FROM outbox_receipts") == []


async def test_what_waits_for_its_turn_leads_to_what_holds_it(outbox: Outbox, visitor: Visitor) -> None:
    """To retry it would change nothing: it runs once the one before it is settled."""
    wallet = uuid4()
    await outbox.subscription()
    dead = await outbox.failed_event(wallet)
    behind = await outbox.failed_event(wallet, "waiting", attempts=0, error=None)
    await outbox.passed()
    page = await visitor.get(f"/events/{behind}")
    assert "is dead for this handler" in page.text
    assert f"/events/{dead}" in page.links
    assert [form.action for form in page.forms if form.action.endswith("/do/retry")] == []
    page = await visitor.get(f"/events/{dead}")
    assert "you: mend the cause and retry it, or skip it" in page.text
    await visitor.did(page.form("/do/retry", handler=HANDLER))
    assert await statuses(outbox) == ["waiting", "waiting"]


async def test_a_delivery_is_skipped_after_a_question(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture
) -> None:
    await outbox.subscription()
    event_id = await outbox.failed_event()
    await outbox.passed()
    page = await visitor.get(f"/events/{event_id}")
    [ask] = [each for each in page.links if "/confirm/skip" in each]
    question = await visitor.get(ask)
    assert f"Skip 1 delivery of {HANDLER}" in question.text
    assert await statuses(outbox) == ["dead"]
    page = await visitor.did(question.form("/do/skip"))
    assert "1 delivery skipped." in page.text
    assert "bank.paid delivered" in page.text
    assert await statuses(outbox) == ["skipped"]
    assert line(told, "skip")["changed"] == 1


async def test_what_a_handler_has_yet_to_come_to_may_be_skipped_ahead(
    outbox: Outbox, visitor: Visitor
) -> None:
    await outbox.subscription()
    event_id = await outbox.event()
    question = await visitor.get(f"/confirm/skip?handler={HANDLER}&event={event_id}")
    assert "1 delivery skipped." in (await visitor.did(question.form("/do/skip"))).text


async def test_all_of_a_group_is_retried_in_order_after_a_preview(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture
) -> None:
    for error in ("KeyError: 1", "KeyError: 22", "ValueError: no"):
        await outbox.failed_event(error=error)
    page = await visitor.get("/dead-letters")
    [ask] = [each for each in page.links if "/confirm/retry" in each and "KeyError" in each]
    question = await visitor.get(ask)
    assert f"Retry 2 deliveries of {HANDLER}" in question.text
    assert "Error KeyError: *" in question.text
    page = await visitor.did(question.form("/do/retry"))
    assert "2 deliveries retried: a relay runs each at its turn." in page.text
    assert await statuses(outbox) == ["waiting", "waiting", "dead"]
    assert line(told, "retry")["kind"] == "KeyError: *"


@pytest.mark.parametrize(
    "error",
    [None, "", " ", " begins odd", "ends odd\u2003", "E: a\r\nb", "E: a\tb", '"quoted"', '"E', "E: ü \\x"],
)
async def test_a_group_is_itself_and_never_all_of_its_handler(
    outbox: Outbox, visitor: Visitor, error: str | None
) -> None:
    """Whatever its letters died of, though they died of nothing that anybody knows."""
    for each in (error, "KeyError: x"):
        await outbox.failed_event(error=each)
    page = await visitor.get("/dead-letters")
    asks = {each for each in page.links if "/confirm/skip" in each}
    assert len(asks) == 2
    for ask in asks - {f"/confirm/skip?handler={HANDLER}&kind=KeyError%3A+x"}:
        letters = await visitor.get(ask.replace("/confirm/skip", "/dead-letters/of"))
        assert "1 dead letter " in letters.text
        [again] = [each for each in letters.links if "/confirm/skip" in each]
        question = await visitor.get(again)
        assert "Skip 1 delivery of" in question.text
        await visitor.did(question.form("/do/skip"))
    assert await statuses(outbox) == ["skipped", "dead"]


async def test_those_that_were_chosen_are_retried_and_no_others(outbox: Outbox, visitor: Visitor) -> None:
    events = [await outbox.failed_event() for _ in range(3)]
    page = await visitor.get(f"/dead-letters/of?handler={HANDLER}")
    form = page.form("/confirm/retry")
    form.fields += [("event", str(events[0])), ("event", str(events[2]))]
    question = Page((await visitor.send(form)).text)
    assert f"Retry 2 deliveries of {HANDLER}" in question.text
    await visitor.did(question.form("/do/retry"))
    assert await statuses(outbox) == ["waiting", "dead", "waiting"]


async def test_those_that_were_chosen_are_skipped_by_the_other_button(
    outbox: Outbox, visitor: Visitor
) -> None:
    events = [await outbox.failed_event() for _ in range(12)]
    page = await visitor.get(f"/dead-letters/of?handler={HANDLER}")
    form = page.form("/confirm/retry")
    [(_, action, _, _)] = [each for each in form.buttons if each[0].startswith("Skip")]
    assert action is not None
    chosen = httpx.QueryParams([("handler", HANDLER), *(("event", str(each)) for each in events)])
    question = await visitor.get(f"{action}?{chosen}")
    assert "and 2 more" in question.text
    page = await visitor.did(question.form("/do/skip"))
    assert "12 deliveries skipped." in page.text


async def test_all_that_a_filter_means_is_skipped(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.failed_event()
    await outbox.delivery(await outbox.event(event_type="bank.other"))
    page = await visitor.get(f"/dead-letters/of?handler={HANDLER}&type=bank.o*")
    [ask] = [each for each in page.links if "/confirm/skip" in each]
    question = await visitor.get(ask)
    assert "Skip 1 delivery" in question.text
    assert "Type bank.o*" in question.text
    await visitor.did(question.form("/do/skip"))
    assert await statuses(outbox) == ["dead", "skipped"]


async def test_a_preview_that_has_not_looked_at_all_says_at_least(
    outbox: Outbox, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "LOOK_MAX", 2)
    for _ in range(3):
        await outbox.failed_event()
    question = await visitor.get(f"/confirm/retry?handler={HANDLER}&type=bank.paid")
    assert "Retry at least 2 deliveries" in question.text
    page = await visitor.did(question.form("/do/retry"))
    assert "3 deliveries retried: a relay runs each at its turn." in page.text


async def test_where_there_is_nothing_to_do_the_question_says_so(outbox: Outbox, visitor: Visitor) -> None:
    question = await visitor.get(f"/confirm/retry?handler={HANDLER}")
    assert "There is nothing to retry here." in question.text
    assert not [form for form in question.forms if "/do/retry" in form.action]


async def test_what_is_half_done_is_left_and_said_until_again_is_said(
    outbox: Outbox, visitor: Visitor
) -> None:
    half = await outbox.failed_event(error="SecondCommit: two commits")
    await outbox.receipt(half)
    await outbox.failed_event()
    question = await visitor.get(f"/confirm/retry?handler={HANDLER}")
    page = await visitor.did(question.form("/do/retry"))
    assert "1 delivery retried: a relay runs it at its turn; 1 delivery left half done" in page.text
    question = await visitor.get(f"/confirm/retry?handler={HANDLER}")
    assert "Also run what stopped halfway, 1 of these" in question.text
    page = await visitor.did(question.form("/do/retry"), again="yes")
    assert "1 delivery retried: a relay runs it at its turn." in page.text
    assert await statuses(outbox) == ["waiting", "waiting"]
    # Nobody is asked about what there is none of.
    await outbox.failed_event()
    assert "halfway" not in (await visitor.get(f"/confirm/retry?handler={HANDLER}")).text


async def test_what_cannot_be_done_is_told_with_what_to_do(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture
) -> None:
    await outbox.subscription()
    half = await outbox.failed_event(error="SecondCommit: two commits")
    await outbox.receipt(half)
    await outbox.passed()
    page = await visitor.get(f"/events/{half}")
    page = await visitor.did(page.form("/do/retry"))
    assert "has committed a first effect of event" in page.text
    assert "a retry from the dead letters, with the tick for what stopped halfway, lets it run" in page.text
    assert line(told, "retry")["outcome"] == "refused"


async def test_what_went_on_meanwhile_is_left_and_said(outbox: Outbox, visitor: Visitor) -> None:
    events = [await outbox.failed_event() for _ in range(2)]
    question = await visitor.get(f"/confirm/retry?handler={HANDLER}&event={events[0]}&event={events[1]}")
    await outbox.execute("UPDATE outbox_deliveries SET status = 'done' WHERE event_id = $1", events[0])
    assert (
        "1 delivery retried: a relay runs it at its turn."
        in (await visitor.did(question.form("/do/retry"))).text
    )


async def test_a_race_for_what_was_chosen_is_told(
    outbox: Outbox, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_id = await outbox.failed_event()
    question = await visitor.get(f"/confirm/retry?handler={HANDLER}")
    choose = dead_letters._batch  # noqa: SLF001 - a relay comes between it and the change

    async def slow(*args: Any, **options: Any) -> Any:
        found = await choose(*args, **options)
        await outbox.execute("UPDATE outbox_deliveries SET status = 'done' WHERE event_id = $1", event_id)
        return found

    monkeypatch.setattr(dead_letters, "_batch", slow)
    page = await visitor.did(question.form("/do/retry"))
    assert "0 deliveries retried; 1 delivery had gone on meanwhile and were left" in page.text


async def test_what_there_was_no_time_for_is_said(
    outbox: Outbox, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "WORK_SECONDS_MAX", 0.0)
    await outbox.failed_event()
    question = await visitor.get(f"/confirm/retry?handler={HANDLER}")
    page = await visitor.did(question.form("/do/retry"))
    assert "there was no time for all: do it once more for the rest" in page.text


async def test_one_is_led_back_to_where_one_was_and_never_elsewhere(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.failed_event()
    question = await visitor.get(f"/confirm/retry?handler={HANDLER}")
    form = question.form("/do/retry")
    for back, location in (
        ("/events?type=a", "/events?type=a"),
        ("//evil.example", "/dead-letters"),
        ("/\\evil.example", "/dead-letters"),
        ("https://evil.example/", "/dead-letters"),
        ("/\r\nx: y", "/dead-letters"),
        (None, "/dead-letters"),
    ):
        response = await visitor.send(form, follow=False, back=back)
        assert (response.status_code, response.headers["location"]) == (303, location)


# --- subscriptions -------------------------------------------------------------------------------------


async def test_a_subscription_is_paused_and_goes_on(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture
) -> None:
    await outbox.subscription()
    page = await visitor.get("/subscriptions")
    page = await visitor.did(pause := page.form("/do/pause", name=HANDLER))
    assert f"{HANDLER} is paused." in page.text
    assert f"{HANDLER} paused" in page.text
    assert f"{HANDLER} is paused already." in (await visitor.did(pause)).text
    one = await visitor.get(f"/subscription?name={HANDLER}")
    page = await visitor.did(resume := one.form("/do/resume"))
    assert f"{HANDLER} goes on." in page.text
    assert f"{HANDLER} was not paused." in (await visitor.did(resume)).text
    changed = [vars(record).get("changed") for record in told.records]
    assert changed == [True, False, True, False]
    assert {vars(record)["subscription"] for record in told.records} == {HANDLER}


async def test_a_retired_one_is_not_paused(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    page = await visitor.get("/subscriptions")
    await outbox.execute("UPDATE outbox_subscriptions SET retired_at = now()")
    page = await visitor.did(page.form("/do/pause"))
    assert "is retired and due for nothing: there is nothing to pause." in page.text


async def test_a_subscription_goes_back_after_a_preview_of_how_much_that_is(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture
) -> None:
    await outbox.subscription()
    for days_old in (3, 2, 1):
        await outbox.event(days_old=days_old)
    await outbox.passed()
    page = await visitor.get(f"/subscription?name={HANDLER}")
    [ask] = [each for each in page.links if "/confirm/rewind" in each]
    question = await visitor.get(ask)
    preview = Page((await visitor.send(question.form("/confirm/rewind"), since="60h")).text)
    assert "2 events from position 2 on" in preview.text
    page = await visitor.did(preview.form("/do/rewind"))
    assert f"{HANDLER} goes on from position 2: 2 events to go." in page.text
    assert await outbox.value("SELECT count(*) FROM outbox_cursors WHERE rewind_to = 1") == 32
    said = line(told, "rewind")
    assert (said["position"], said["again"], said["shards"], said["effects"]) == (2, False, 32, 0)


async def test_effects_happen_again_only_if_that_is_said(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    event_id = await outbox.event()
    await outbox.receipt(event_id)
    await outbox.passed()
    question = await visitor.get(f"/confirm/rewind?name={HANDLER}&position=1&again=yes")
    assert "Their effects happen again." in question.text
    await visitor.did(question.form("/do/rewind"))
    assert await outbox.receipts() == []


async def test_a_way_back_that_is_none_is_said(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    await outbox.event(days_old=1)
    for query, words in (
        ("since=1h", "No event for it is that young."),
        ("since=soon", "Write a position such as 4711"),
        ("position=0", "Write a position such as 4711"),
        ("position=" + "9" * 30, "Write a position such as 4711"),
    ):
        page = await visitor.get(f"/confirm/rewind?name={HANDLER}&{query}")
        assert words in page.text
        assert "/do/rewind" not in [form.action for form in page.forms]
    ahead = await visitor.get(f"/confirm/rewind?name={HANDLER}&position=1")
    page = await visitor.did(ahead.form("/do/rewind"))
    assert f"{HANDLER} has yet to come to position 1, and is left where it is." in page.text
    response = await visitor.send(ahead.form("/do/rewind"), position="x")
    assert response.status_code == 400


async def test_a_subscription_that_nobody_carries_is_retired(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture
) -> None:
    await outbox.subscription()
    await outbox.failed_event()
    page = await visitor.get(f"/subscription?name={HANDLER}")
    [ask] = [each for each in page.links if "/confirm/retire" in each]
    question = await visitor.get(ask)
    assert "0 waiting, 1 dead" in question.text
    page = await visitor.did(question.form("/do/retire"))
    assert f"{HANDLER} is retired, 1 delivery skipped." in page.text
    assert (line(told, "retire")["changed"], line(told, "retire")["skipped"]) == (True, 1)
    assert "is retired already" in (await visitor.did(question.form("/do/retire"))).text


async def test_one_that_lives_is_not_retired(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    question = await visitor.get(f"/confirm/retire?name={HANDLER}")
    assert "A live relay carries it (host-1, process 7)" in question.text
    page = await visitor.did(question.form("/do/retire"))
    assert "is carried by a live relay" in page.text
    assert await outbox.value("SELECT retired_at FROM outbox_subscriptions") is None


async def test_one_pattern_is_retired(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription(patterns=("bank.old", "bank.paid"))
    question = await visitor.get(f"/confirm/retire?name={HANDLER}&pattern=bank.old")
    page = await visitor.did(question.form("/do/retire"))
    assert f"bank.old of {HANDLER} is retired, 0 deliveries skipped." in page.text
    assert await outbox.value("SELECT patterns FROM outbox_subscriptions") == ["bank.paid"]


# --- purge, theme, and what goes wrong -----------------------------------------------------------------


async def test_what_was_delivered_long_ago_is_purged(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture
) -> None:
    await outbox.subscription("bank.Idle", ("bank.idle",))
    for days_old in (30, 20, 1):
        await outbox.event(days_old=days_old)
    await outbox.passed("bank.Idle")
    page = await visitor.get("/relays")
    question = Page((await visitor.send(page.form("/confirm/purge"), days="10")).text)
    assert "At most 2 events" in question.text
    page = await visitor.did(question.form("/do/purge"))
    assert "2 events older than 10 days purged, with 0 deliveries and 0 receipts." in page.text
    assert await outbox.value("SELECT count(*) FROM outbox_events") == 1
    assert (line(told, "purge")["older_than_days"], line(told, "purge")["events"]) == (10.0, 2)


async def test_a_purge_that_has_had_its_time_says_so(
    outbox: Outbox, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outbox_kernel.infrastructure.dashboard.actions import purging

    monkeypatch.setattr(purging, "WORK_SECONDS_MAX", 0.0)
    question = await visitor.get("/confirm/purge?days=1")
    assert "do it once more for the rest" in (await visitor.did(question.form("/do/purge"))).text


async def test_the_colours_are_chosen_by_a_form_and_kept(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture
) -> None:
    for theme in ("dark", "light", "auto"):
        page = await visitor.get("/subscriptions?x=1")
        form = page.form("/do/theme")
        [(_, _, name, value)] = form.buttons
        assert (name, value) == ("theme", theme)
        response = await visitor.send(form, follow=False, theme=theme)
        assert (response.status_code, response.headers["location"]) == (303, "/subscriptions?x=1")
        assert f'data-theme="{theme}"' in (await visitor.client.get("/")).text
    form = (await visitor.get("/")).form("/do/theme")
    await visitor.send(form, theme="pink")
    assert 'data-theme="auto"' in (await visitor.client.get("/")).text
    visitor.client.cookies.set("outbox_theme", "<script>", domain="localhost")
    assert "<script>" not in (await visitor.client.get("/")).text.partition("<head>")[0]
    assert told.records == []


async def test_a_database_that_goes_away_meanwhile_is_said_and_logged(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await outbox.subscription()
    page = await visitor.get("/subscriptions")

    async def gone(*_: object) -> bool:
        raise DatabaseUnreachable("the database is gone: start it")

    monkeypatch.setattr(subscriptions, "pause", gone)
    response = await visitor.send(page.form("/do/pause"), follow=False)
    assert response.status_code == 503
    assert "The database is gone" in response.text
    assert line(told, "pause")["outcome"] == "refused"


async def test_a_defect_of_ours_is_logged_with_who_and_raised(
    outbox: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await outbox.subscription()
    page = await visitor.get("/subscriptions")

    async def broken(*_: object) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(subscriptions, "pause", broken)
    with pytest.raises(ZeroDivisionError):
        await visitor.send(page.form("/do/pause"), follow=False)
    assert line(told, "pause")["outcome"] == "broken off"


async def test_relays_are_woken(outbox: Outbox, engine: AsyncEngine) -> None:
    heard: list[str] = []
    await outbox.desk.connection.add_listener("outbox_channel", lambda *told: heard.append(str(told[3])))
    await outbox.failed_event()
    async with visiting(Dashboard(SETTINGS, engine)) as visitor:
        question = await visitor.get(f"/confirm/retry?handler={HANDLER}")
        await visitor.did(question.form("/do/retry"))
    await outbox.value("SELECT 1")
    assert heard == ["deliveries"]


async def test_a_form_that_is_not_filled_in_is_refused(outbox: Outbox, visitor: Visitor) -> None:
    await outbox.subscription()
    form = (await visitor.get("/subscriptions")).form("/do/pause")
    for changes in ({"name": None}, {"name": "  "}):
        response = await visitor.send(form, follow=False, **changes)
        assert response.status_code == 400
        assert "This form is not complete" in response.text
