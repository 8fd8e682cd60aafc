"""The operator's commands as they are typed: output for people and programs, exit codes, questions (O1)."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import click
import pytest

from outbox_kernel.infrastructure.brokers.operated import Finding, Letter
from outbox_kernel.infrastructure.outbox import branches
from tests.a_second_migration import with_a_second
from tests.integration.operations.conftest import HANDLER, Outbox

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"

Result = tuple[int | str | None, str, str]


async def dead_event(outbox: Outbox) -> Any:
    await outbox.is_read()
    return await outbox.failed_event(uuid4())


async def busy(outbox: Outbox) -> Any:
    await outbox.subscription()
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    event = await dead_event(outbox)
    await outbox.passed()
    return event


def test_status_is_sections_for_people_and_one_document_for_programs(run: Any, by_hand: Any) -> None:
    assert run("status")[1].startswith("no relay lives: start `outbox relay`")
    by_hand(busy)

    async def stranded(outbox: Outbox) -> None:
        await outbox.delivery(await outbox.event(), "waiting", handler="bank.Gone")
        await outbox.pauses({"queue notes": {"reason": "it is away", "since": "2026-01-02T03:04:05+00:00"}})

    by_hand(stranded)
    code, out, _ = run("status")
    assert code == 0
    titles = ("# relays", "# events", "# subscriptions", "# no live relay can run", "# queues that are stuck")
    for title in titles:
        assert title in out
    assert "bank.Gone\tbank.paid v1\t1\t" in out
    assert "notes\thost-1\t7\t2026-01-02 03:04:05\tit is away\n" in out
    seen = json.loads(run("status", "--json")[1])
    assert set(seen) == {"relays", "backlog", "oldest", "subscriptions", "stranded", "queues"}
    assert seen["relays"][0]["host"] == "host-1"


def test_on_a_terminal_the_sections_are_tables(
    run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(busy)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, out, _ = run("status")
    assert "\nrelays\n" in out
    assert "│ host-1" in out


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_on_a_narrow_terminal_nothing_is_cut(
    run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    by_hand(busy)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    lines: list[str] = []
    for command in ("status", "failed", "events"):
        _, out, _ = run(command)
        lines = [line for line in click.unstyle(out).splitlines() if "│" in line]
        assert "…" not in out
        assert max(map(len, lines)) <= int(columns)
    # On lines of their own where columns would not fit, beside one another where they do.
    assert any("bank.paid" in line and "dead" in line for line in lines) is (columns == "200")
    assert "".join(line.split("│")[2].strip() for line in lines if "bank" in line).startswith("bank.") is (
        columns != "200"
    )


def test_an_id_stays_whole_on_a_narrow_terminal(
    run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = by_hand(busy)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert str(event) in run("events")[1]


def columns_of(command: str) -> dict[str, list[str]]:
    """What the reference says of each list of a command; a list without a title of its own has none there."""
    rows = re.findall(rf"^\| (?:`(# .+)` of )?`{command}` \| (.+) \|$", REFERENCE.read_text(), re.MULTILINE)
    return {title.removeprefix("# "): columns.split(", ") for title, columns in rows}


def test_the_reference_names_the_columns_of_each_command(
    run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1: in a pipe nothing else does."""
    event = by_hand(busy)

    async def all_there_is(outbox: Outbox) -> None:
        await outbox.subscription("bank.Other", ("bank.paid", "bank.noted"))
        await outbox.relay({"bank.Other": {"bank.paid": 1}}, patterns={"bank.Other": ["bank.paid"]})
        await outbox.delivery(event, "waiting", handler="bank.Gone")
        await outbox.receipt(event)
        await outbox.pauses({"queue notes": {"reason": "it is away", "since": "2026-01-02T03:04:05+00:00"}})

    by_hand(all_there_is)
    aggregate = json.loads(run("events", "--json")[1])[0]["aggregate_id"]
    for command in (["status"], ["events"], ["failed"], ["show", event], ["history", aggregate], ["doctor"]):
        module = {"status": "status", "doctor": "doctor"}.get(command[0], "stories")
        printed: dict[str, list[str]] = {}
        titles = [""]
        at = f"outbox_kernel.infrastructure.cli.{module}"
        monkeypatch.setattr(f"{at}.print_title", titles.append, raising=False)
        monkeypatch.setattr(
            f"{at}.print_rows", lambda rows, to=printed, at=titles: to.update({at[-1]: list(rows[0])})
        )
        run(*command)
        assert printed == columns_of(command[0]), command


@pytest.mark.parametrize(("command", "row"), [("topology", Finding), ("dead-letters list", Letter)])
def test_the_reference_names_the_columns_of_what_a_broker_is_asked(command: str, row: type) -> None:
    assert columns_of(command) == {"": [each.name for each in attrs.fields(row)]}


def test_events_show_history_and_failed_tell_the_same_event(run: Any, by_hand: Any) -> None:
    event = by_hand(dead_event)
    (row,) = json.loads(run("events", "--json", "--status", "dead")[1])
    assert row["event_id"] == str(event)
    aggregate = f"{row['aggregate_type']}:{row['aggregate_id']}"
    assert run("events", "--since", "1h", "--type", "bank.*", "--aggregate", aggregate)[1].count("\n") == 1
    assert "an operator: `outbox retry` or `outbox skip`" in run("show", event)[1]
    assert json.loads(run("show", event, "--json")[1])["deliveries"][0]["status"] == "dead"
    assert f"\t{HANDLER}\t" in run("history", aggregate)[1]
    assert json.loads(run("history", aggregate, "--json")[1])[0]["event_id"] == str(event)
    assert "ValueError: no" in run("failed")[1]
    assert json.loads(run("failed", "--json")[1])["total"] == 1


LONG = "ValueError: " + "the shop is closed, " * 10 + "so open it"


def test_in_a_pipe_no_error_is_cut_since_its_remedy_stands_at_its_end(
    run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(outbox: Outbox) -> Any:
        event = await outbox.event(uuid4())
        await outbox.delivery(event, error=LONG)
        return event

    event = by_hand(failing)
    assert LONG in run("failed")[1]
    assert LONG in run("show", event)[1].partition("# deliveries")[2]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "2000")
    assert LONG not in run("failed")[1]
    assert LONG in run("show", event)[1].partition("deliveries")[2]


def test_an_event_is_shown_by_the_position_that_the_list_begins_with(run: Any, by_hand: Any) -> None:
    event = by_hand(dead_event)
    position = run("events")[1].split("\t")[0]
    assert run("show", position) == run("show", event)
    assert f"event_id\t{event}\n" in run("show", position)[1]
    assert "there is no event 999999: `outbox events` lists the newest" in run("show", "999999")[2]


def test_an_event_is_mended_by_its_position_too(run: Any, by_hand: Any) -> None:
    by_hand(dead_event)
    position = run("events")[1].split("\t")[0]
    assert run("skip", position) == (0, "1 delivery skipped\n", "")
    assert run("retry", position) == (0, "1 delivery retried\n", "")
    by_hand(lambda outbox: outbox.subscription())
    assert "of 1 event for" in run("replay", HANDLER, "--event", position)[1]
    for words in (["retry", "999999"], ["skip", "0"], ["replay", HANDLER, "--event", "999999"]):
        code, out, err = run(*words)
        assert (code, out) == (1, ""), words
        assert err.startswith("error: there is no event "), words


def test_to_skip_what_has_not_failed_yet_a_handler_is_to_be_named(run: Any, by_hand: Any) -> None:
    by_hand(lambda outbox: outbox.subscription())
    event = by_hand(lambda outbox: outbox.event())
    told = f"error: nothing of event {event} has failed, it is pending: `outbox "
    code, out, err = run("skip", event)
    assert (code, out) == (1, "")
    assert err == (
        f"{told}skip {event} --handler NAME` is for a handler that has yet to come to it, and `outbox show {event}` "
        "names those\n"
    )
    assert run("retry", event)[2] == f"{told}show {event}` says what it waits for\n"
    assert run("skip", event, "--handler", HANDLER) == (0, "1 delivery skipped\n", "")


HOSTILE = "\x1b]0;mine\x07\x9b2J\u202e\t\n"


def test_what_strangers_wrote_commands_no_terminal_and_breaks_no_column(
    run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hostile(outbox: Outbox) -> Any:
        event = await outbox.event(uuid4(), event_type=f"bank.{HOSTILE}")
        await outbox.delivery(event, handler=f"bank.{HOSTILE}", error=f"ValueError: {HOSTILE}no")
        await outbox.delivery(event, "waiting", handler="bank.Other", attempts=0)
        return event

    event = by_hand(hostile)
    for words in (
        ["status"],
        ["events"],
        ["failed"],
        ["show", event],
        ["retry", event, "--handler", HOSTILE],
    ):
        _, out, err = run(*words)
        assert "\\x1b]0;mine\\x07\\x9b2J\\u202e\\t\\n" in out + err
        assert (out + err).replace("\n", "").replace("\t", "").isprintable()
    assert run("events")[1].count("\t") == 9
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\x1b]" not in run("status")[1]


@pytest.mark.parametrize("payload", ["[]", '"hush"', "9" * 5_000, "[" * 3_000 + "]" * 3_000])
def test_a_payload_that_is_no_object_is_masked_as_a_whole(run: Any, by_hand: Any, payload: str) -> None:
    event = by_hand(dead_event)
    by_hand(lambda outbox: outbox.execute("UPDATE outbox_events SET payload = $1::text::jsonb", payload))
    assert "payload\t*** (no object of fields, so it is masked as a whole)\n" in run("show", event)[1]
    assert "hush" not in run("show", event, "--json")[1]


def test_a_number_beyond_pythons_is_text(run: Any, by_hand: Any) -> None:
    event = by_hand(dead_event)
    headers = json.dumps({"count": 1})[:-2] + "9" * 5_000 + "}"
    by_hand(lambda outbox: outbox.execute("UPDATE outbox_events SET headers = $1::text::jsonb", headers))
    assert json.loads(run("show", event, "--json")[1])["headers"] == {"count": "9" * 5_000}
    assert "… (5013 characters; --json prints all)\n" in run("show", event)[1]


def test_times_are_iso_8601_for_programs(run: Any, by_hand: Any) -> None:
    by_hand(dead_event)
    (row,) = json.loads(run("events", "--json")[1])
    assert row["created_at"] == datetime.fromisoformat(row["created_at"]).isoformat()


def test_no_event_is_no_error_and_not_nothing(run: Any) -> None:
    assert run("events") == (0, "", "there is no such event\n")
    assert run("events", "--json") == (0, "[]\n", "")


def test_where_relays_live_and_none_reads_for_a_subscription_its_name_is_said_first(
    run: Any, by_hand: Any
) -> None:
    """O1, R2."""

    async def begin(outbox: Outbox) -> None:
        await outbox.relay({"bank.Other": {}})
        await outbox.subscription()

    by_hand(begin)
    assert run("status")[1].startswith("# relays\n")
    by_hand(lambda outbox: outbox.event(days_old=1))
    _, out, _ = run("status")
    assert out.startswith(f"no live relay carries {HANDLER}, and events stand behind it\n# relays\n")
    assert " pending for 1.0 d\n" in out
    assert f"{HANDLER}\tbank.paid\t\t0\t1\t1.0 d\t0\t0\t0\tno live relay carries it\n" in out
    by_hand(lambda outbox: outbox.relay({HANDLER: {"bank.paid": 1}}))
    assert run("status")[1].startswith("# relays\n")


def test_a_subscription_says_how_far_behind_it_is_and_whether_it_stands(
    run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1, R7."""

    async def far_behind(outbox: Outbox) -> None:
        await outbox.subscription(source="notes")
        await outbox.relay({HANDLER: {"bank.paid": 1}})
        for _ in range(3):
            await outbox.event(days_old=2)
        await outbox.execute("UPDATE outbox_events SET source = 'notes'")

    by_hand(far_behind)
    assert f"{HANDLER}\tbank.paid\tnotes\t1\t3\t2.0 d\t0\t0\t0\t\n" in run("status")[1]
    monkeypatch.setattr("outbox_kernel.infrastructure.operations.overview.LAG_EVENTS_MAX", 2)
    _, out, _ = run("status")
    assert f"{HANDLER}\tbank.paid\tnotes\t1\t≥ 2\t2.0 d\t" in out
    assert "pending\t≥ 2\n" in out
    assert "delivered\tnot known while so much is pending\n" in out
    told = {HANDLER: {"reason": "payments are away", "since": "2026-01-02T03:04:05+00:00"}}
    by_hand(lambda outbox: outbox.pauses(told))
    assert "\tstands still: payments are away\n" in run("status")[1]
    assert run("pause", HANDLER)[0] == 0
    assert "\tpaused\n" in run("status")[1]


def test_before_its_last_migration_a_command_asks_for_it(
    run: Any, empty_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 7: new code says that it needs what is new."""
    before = "ALTER TABLE outbox_relays DROP patterns"
    folder = with_a_second(tmp_path / "later", up="SELECT 1", down=before)
    monkeypatch.setattr(branches, "_outbox_folder", lambda: folder)
    monkeypatch.setenv("DATABASE_URL", empty_postgres_url)
    monkeypatch.setenv("OUTBOX_CONTEXTS", "contexts.accounts")
    assert run("migrate")[0] == 0
    assert run("migrate", "--down", "outbox@outbox_0001", "--yes")[0] == 0
    code, out, err = run("status")
    assert (code, out) == (1, "")
    assert '(column "patterns" does not exist): run the migration that adds it' in err
    code, out, _ = run("doctor")
    assert code == 1
    assert "migrations\tfail\tnot run yet: outbox_0002" in out


def test_a_relay_whose_lease_ran_out_does_not_hide_that_none_lives(run: Any, by_hand: Any) -> None:
    by_hand(lambda outbox: outbox.relay(live=False))
    assert run("status")[1].startswith("no relay lives: start `outbox relay`\n# relays\n")


def test_nothing_failed_is_no_error(run: Any) -> None:
    assert run("failed") == (0, "", "nothing has failed\n")


def test_failed_says_how_many_it_left_out(run: Any, by_hand: Any) -> None:
    by_hand(dead_event)
    by_hand(dead_event)
    _, out, err = run("failed", "--limit", 1)
    assert (out.count("\n"), err) == (1, "and 1 more: --limit shows them\n")


def test_retry_and_skip_say_how_many(run: Any, by_hand: Any) -> None:
    event = by_hand(dead_event)
    assert run("retry", event) == (0, "1 delivery retried\n", "")
    assert run("skip", event, "--handler", HANDLER) == (0, "1 delivery skipped\n", "")
    answer = json.loads(run("retry", event, "--json")[1])
    assert answer == {"retried": 1, "chosen": 1, "changed": 1, "left": 0, "half_done": 0}


def test_retry_says_what_it_left_half_done_and_repeats_it_when_asked(run: Any, by_hand: Any) -> None:
    """R6."""

    async def half_done(outbox: Any) -> str:
        event = await outbox.event()
        await outbox.delivery(event, error="SecondCommit: handler commits a second time")
        await outbox.receipt(event, "done")
        return str(event)

    event = by_hand(half_done)
    code, out, err = run("retry", event)
    assert (code, out) == (1, "")
    assert "outbox retry --again" in err
    by_hand(dead_event)
    code, out, err = run("retry", "--all", "--yes")
    assert (code, out) == (0, "1 delivery retried\n")
    assert err.startswith("1 delivery left half done: a first effect has committed")
    assert run("retry", event, "--again") == (0, "1 delivery retried\n", "")


@pytest.mark.parametrize(
    "words", [["retry", "--all"], ["skip", "--handler", "bank.Absent"], ["retry", str(uuid4())]]
)
def test_nothing_to_do_is_one_sentence_and_code_1(run: Any, words: list[str]) -> None:
    code, out, err = run(*words)
    assert (code, out) == (1, "")
    assert err.startswith("error: there is no")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["retry"],
        ["skip"],
        ["retry", str(uuid4()), "--all"],
        ["show", "x"],
        ["history", "order:"],
        ["events", "--since", "yesterday"],
        ["replay", "a.B"],
        ["replay", "a.B", "--since", "1h", "--from-position", "1"],
        ["replay", "a.B", "--from-position", "0"],
        ["purge", "--older-than", "-1"],
        ["purge", "--older-than", "nan"],
        ["events", "--limit", str(10**22)],
        ["events", "--since", "9999-12-31T23:59-14:00"],
        ["events", "--type", ""],
        ["pause", ""],
        ["pause", "\udcff"],  # what Python makes of bytes that are no UTF-8
    ],
)
def test_a_mistyped_line_is_one_sentence_and_code_2(run: Any, words: list[str]) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", ["--type", "--handler"])
def test_a_shell_variable_that_is_not_set_does_not_mean_everything(
    run: Any, by_hand: Any, option: str
) -> None:
    event = by_hand(dead_event)
    code, out, err = run("skip", option, "")
    assert (code, out) == (2, "")
    assert "it is empty; say which, or leave the option out" in err
    assert by_hand(lambda outbox: outbox.status(event)) == "dead dead"


def test_a_mistyped_handler_is_told_from_one_that_has_nothing_to_mend(run: Any, by_hand: Any) -> None:
    by_hand(lambda outbox: outbox.subscription())
    assert run("retry", "--handler", HANDLER)[2].startswith("error: there is nothing to retry")
    assert run("skip", "--handler", "bank.Leters")[2] == (
        f"error: there is no subscription 'bank.Leters': there are {HANDLER}\n"
    )


def test_an_age_that_reaches_back_before_all_time_means_everything(run: Any, by_hand: Any) -> None:
    by_hand(dead_event)
    assert run("events", "--since", "900000d")[1].count("\n") == 1


def test_many_are_asked_about_on_a_terminal(run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand(dead_event)
    by_hand(dead_event)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda _, **__: False)
    assert run("skip", "--all") == (1, "", "nothing was changed\n")
    monkeypatch.setattr("click.confirm", lambda question, **_: question == "skip 2 deliveries?")
    assert run("skip", "--all") == (0, "2 deliveries skipped\n", "")
    monkeypatch.setattr("click.confirm", lambda question, **_: pytest.fail(question))
    assert run("retry", "--handler", HANDLER, "--skipped", "--yes") == (0, "2 deliveries retried\n", "")


@pytest.mark.parametrize(
    ("words", "question", "done"),
    [
        (["retire", HANDLER], f"retire {HANDLER}, and skip what waits for it?", f"{HANDLER} is retired, 0"),
        (
            ["retire", HANDLER, "--pattern", "old/bank.paid"],
            f"retire old/bank.paid of {HANDLER}, and skip what waits for it?",
            f"old/bank.paid of {HANDLER} is retired, 0 deliveries skipped",
        ),
        (
            ["purge", "--older-than", "4"],
            "purge what was written more than 4 days ago and is delivered?",
            "1 event written",
        ),
    ],
)
def test_what_cannot_be_undone_is_asked_about_on_a_terminal(
    run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch, words: list[str], question: str, done: str
) -> None:
    """O1: as `skip` asks about many."""
    by_hand(lambda outbox: outbox.event(days_old=5))
    by_hand(lambda outbox: outbox.subscription(patterns=("bank.paid", "bank.noted", "old/bank.paid")))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    asked: list[str] = []

    def refuse(question: str, **_: object) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr("click.confirm", refuse)
    assert run(*words) == run(*words, "--json") == (1, "", "nothing was changed\n")
    assert asked == [question, question]
    assert run(*words, "--yes")[1].startswith(done)
    # A pattern that is ended is not there to be ended again.
    assert run(*words, "--json", "--yes")[0] == ("--pattern" in words)
    assert asked == [question, question]


def test_a_single_pattern_is_retired(run: Any, by_hand: Any) -> None:
    """R2, O1."""
    by_hand(lambda outbox: outbox.subscription(patterns=("bank.*", "bank.noted", "bank.sent")))
    by_hand(lambda outbox: outbox.relay({HANDLER: {"bank.noted": 1}}, patterns={HANDLER: ["bank.noted"]}))

    async def waiting(outbox: Outbox) -> None:
        await outbox.delivery(await outbox.event(), "waiting")

    by_hand(waiting)
    assert "# due, though no live relay of that name carries it\n" in run("status")[1]
    assert f"{HANDLER}\tbank.*\n{HANDLER}\tbank.sent\n" in run("status")[1]
    words = ("retire", HANDLER, "--pattern")
    assert run(*words, "bank.*") == (0, f"bank.* of {HANDLER} is retired, 1 delivery skipped\n", "")
    assert json.loads(run(*words, "bank.sent", "--json")[1]) == {
        "name": HANDLER,
        "pattern": "bank.sent",
        "changed": True,
        "skipped": 0,
    }
    assert run(*words, "bank.sent")[2] == (
        f"error: '{HANDLER}' has no pattern 'bank.sent': there is 'bank.noted'\n"
    )
    assert "deploy the code without it first" in run(*words, "bank.noted")[2]
    assert "no live relay of that name" not in run("status")[1]


def test_a_question_is_asked_where_ctrl_c_is_heard(
    run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(dead_event)
    by_hand(dead_event)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)

    def interrupted(*_: object, **__: object) -> bool:
        # Within an event loop SIGINT only cancels a task, and that task is waiting for the answer.
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        raise click.Abort

    monkeypatch.setattr("click.confirm", interrupted)
    assert run("skip", "--all") == (130, "", "error: interrupted\n")


def test_a_handler_is_paused_resumed_and_retired(run: Any, by_hand: Any) -> None:
    by_hand(lambda outbox: outbox.subscription())
    by_hand(lambda outbox: outbox.event(uuid4()))
    assert run("pause", HANDLER)[:2] == (0, f"{HANDLER} is paused\n")
    assert run("pause", HANDLER)[:2] == (0, f"{HANDLER} is paused already\n")
    assert json.loads(run("resume", HANDLER, "--json")[1]) == {"name": HANDLER, "changed": True}
    assert run("resume", HANDLER)[:2] == (0, f"{HANDLER} is not paused\n")
    assert run("retire", HANDLER)[:2] == (0, f"{HANDLER} is retired, 0 deliveries skipped\n")
    assert run("retire", HANDLER)[:2] == (0, f"{HANDLER} is retired already, 0 deliveries skipped\n")
    assert json.loads(run("retire", HANDLER, "--json")[1])["changed"] is False


def test_the_past_is_given_again_from_a_moment_or_a_position_on(run: Any, by_hand: Any) -> None:
    """R17."""

    async def handled(outbox: Outbox) -> None:
        await outbox.subscription()
        for days_old in (9, 3, 1):
            await outbox.event(days_old=days_old)
        await outbox.passed()

    by_hand(handled)
    assert run("replay", HANDLER, "--since", "7d") == (
        *(0, f"{HANDLER} goes on from position 2: 2 events to go\n", ""),
    )
    answer = json.loads(run("replay", HANDLER, "--from-position", "1", "--again", "--json")[1])
    assert answer == {"position": 1, "shards": 32, "events": 3, "is_at_least": False, "effects": 0}
    assert run("replay", HANDLER, "--since", "2d") == (
        *(0, f"{HANDLER} has yet to come to position 3, and is left where it is: 3 events to go\n", ""),
    )


def test_single_events_are_given_again(run: Any, by_hand: Any) -> None:
    """R17."""
    by_hand(lambda outbox: outbox.subscription())
    wallet = uuid4()
    events = [by_hand(lambda outbox: outbox.event(wallet)) for _ in range(2)]
    code, out, err = run("replay", HANDLER, "--event", events[0])
    assert (code, out) == (0, f"0 deliveries made due, of 1 event for {HANDLER}\n")
    assert err == "1 event it has yet to come to\n"
    by_hand(lambda outbox: outbox.passed())
    by_hand(lambda outbox: outbox.receipt(events[0]))
    code, out, err = run("replay", HANDLER, "--aggregate", f"bank.wallet:{wallet}")
    assert (code, out) == (0, f"1 delivery made due, of 2 events for {HANDLER}\n")
    assert err == "what it has handled, or is at, is left: --again runs what it has handled\n"
    answer = json.loads(run("replay", HANDLER, "--event", events[0], "--again", "--json")[1])
    assert answer == {"matching": 1, "due": 1, "ahead": 0}
    absent = uuid4()
    assert run("replay", HANDLER, "--event", absent)[2] == (
        f"error: there is no event {absent}: `outbox events` lists the newest\n"
    )


def test_a_replay_of_nothing_fails(run: Any, by_hand: Any) -> None:
    by_hand(lambda outbox: outbox.subscription())
    code, out, err = run("replay", HANDLER, "--since", "1h")
    assert (code, out) == (1, "")
    assert err.startswith(f"error: no event for {HANDLER} is that young: say --since")
    code, out, err = run("replay", HANDLER, "--from-position", "99999", "--json")
    assert (code, out, json.loads(err)["kind"]) == (1, "", "NothingFound")


def test_purge_takes_its_days_from_the_settings(
    run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(lambda outbox: outbox.is_read())
    by_hand(lambda outbox: outbox.event(days_old=5))
    assert json.loads(run("purge", "--json")[1])["events"] == 0
    monkeypatch.setenv("OUTBOX_CLEANUP_DAYS", "never")
    code, _, err = run("purge")
    assert code == 2
    assert "say --older-than DAYS" in err
    assert run("purge", "--older-than", 4)[1].startswith("1 event written more than 4 days ago purged")


def test_long_work_shows_a_bar_on_a_terminal(run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand(dead_event)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, out, err = run("retry", "--all")
    assert (code, out) == (0, "1 delivery retried\n")
    assert "retry" in err


def test_doctor_ends_with_1_when_something_is_not_delivered(run: Any, by_hand: Any) -> None:
    code, out, _ = run("doctor")
    assert code == 1
    assert "migrations\tfail\tnot run yet: outbox_0001" in out
    assert json.loads(run("doctor", "--json")[1])["healthy"] is False


def test_without_tables_the_remedy_is_to_migrate(
    run: Any, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", empty_postgres_url)
    for command in (["status"], ["events"], ["failed"], ["retry", "--all"], ["purge"], ["pause", "x"]):
        code, out, err = run(*command)
        assert (code, out) == (1, "")
        assert "does not exist): run `outbox migrate`" in err


def test_an_outbox_in_a_schema_of_its_own_is_found_there(
    run: Any, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", empty_postgres_url)
    monkeypatch.setenv("OUTBOX_SCHEMA", "mailroom")
    monkeypatch.setenv("OUTBOX_CONTEXTS", "contexts.accounts")
    assert run("migrate")[0] == 0
    for command in (["status"], ["events"], ["failed"], ["purge"]):
        assert run(*command)[0] == 0, command
    for command in (["retry", "--all"], ["skip", "--all"], ["retire", "x"], ["show", str(uuid4())]):
        code, _, err = run(*command)
        assert (code, err.startswith("error: there is no")) == (1, True), command
    checks = {each["check"]: each["state"] for each in json.loads(run("doctor", "--json")[1])["checks"]}
    assert (checks["migrations"], checks["bloat"], checks["leases"]) == ("ok", "ok", "ok")
