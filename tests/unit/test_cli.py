"""The `outbox` command before it meets a database: help, version, mistakes (O1)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from outbox_kernel.__main__ import main as command_line
from outbox_kernel.infrastructure.cli import main
from outbox_kernel.infrastructure.cli.command_line import COMMANDS
from outbox_kernel.infrastructure.cli.command_line import outbox as outbox_group
from outbox_kernel.infrastructure.cli.output import print_rows


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "OUTBOX_SCHEMA", "OUTBOX_CONTEXTS"):
        monkeypatch.delenv(name, raising=False)


def test_help_names_every_command_with_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for name, (_, summary) in COMMANDS.items():
        assert f"  {name} " in out
        assert summary.split()[0] in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_json(name: str) -> None:
    command = outbox_group.get_command(click.Context(outbox_group), name)
    assert command is not None
    for each in command.commands.values() if isinstance(command, click.Group) else [command]:
        assert each.help
        assert "--json" in {option for parameter in each.params for option in parameter.opts}


def test_without_a_command_it_shows_the_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys)
    assert code == 2
    assert "Usage: outbox" in err


def test_version_names_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith("outbox-kernel")


@pytest.mark.parametrize(
    "mistake",
    [
        ["nonsense"],
        ["migrate", "--nonsense"],
        ["migrate", "--sql", "--down", "x@y"],
        ["migrate", "--yes"],
    ],
)
def test_a_mistyped_line_is_one_sentence_and_code_2(
    capsys: pytest.CaptureFixture[str], mistake: list[str]
) -> None:
    code, out, err = run(capsys, *mistake)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_errors_are_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "migrate", "--json")
    assert (code, out) == (1, "")
    error = json.loads(err)
    assert error["kind"] == "BadSetting"
    assert error["error"].startswith("DATABASE_URL is not set")


def test_the_script_needs_no_database(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "migrate", "--sql")
    assert code == 0
    assert "CREATE TABLE outbox_events" in out
    assert out.rstrip().endswith("COMMIT;")


def test_the_script_comes_as_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "migrate", "--sql", "--json")
    assert "CREATE TABLE outbox_events" in json.loads(out)["sql"]


def test_a_defect_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "broken", ("absent:command", "Broken."))
    with pytest.raises(ModuleNotFoundError):
        main(["broken"])


def test_the_script_looks_for_the_application_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*filter(None, sys.path)])
    monkeypatch.setattr(sys, "argv", ["outbox", "--version"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        command_line()
    assert sys.path[0] == str(tmp_path)


def test_rows_are_a_table_at_a_terminal_and_plain_lines_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[dict[str, object]] = [
        {"branch": "outbox", "note": "[red]as it is[/]"},
        {"branch": "accounts", "note": None},
    ]
    print_rows(rows)
    assert capsys.readouterr().out == "outbox\t[red]as it is[/]\naccounts\t\n"

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows(rows)
    table = capsys.readouterr().out
    assert "branch" in table
    assert "[red]as it is[/]" in table


def test_an_interrupted_command_ends_with_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("outbox_kernel.infrastructure.cli.migrate.migration_sql", interrupt)
    code, out, err = run(capsys, "migrate", "--sql")
    assert (code, out) == (130, "")
    assert err.strip() == "error: interrupted"


def test_interrupted_while_it_is_loaded_it_ends_with_130_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loading(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(
        sys.modules, "outbox_kernel.infrastructure.cli", Loading("outbox_kernel.infrastructure.cli")
    )
    with pytest.raises(SystemExit) as ended:
        command_line()
    assert ended.value.code == 130


def test_rows_without_any_output_go_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    print_rows([{"branch": "outbox"}])


@pytest.mark.parametrize("word", ["three", "-", "9" * 19])
def test_what_names_no_event_is_told_what_does(capsys: pytest.CaptureFixture[str], word: str) -> None:
    code, _, err = run(capsys, "show", "--", word)
    assert code == 2
    assert f"{word!r} is no event; give the position or the id that `outbox events` lists" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["events", "--limit", "abc"], "'--limit': 'abc'; give a whole number from 1 to 100000"),
        (["events", "--limit", "-4"], "'--limit': '-4'; give a whole number from 1 to 100000"),
        (["telemetry", "alerts", "--lag-seconds", "0"], "'--lag-seconds': '0'; give a number from 1 on"),
        (["token", "ada", "--hours", "nan"], "'--hours': 'nan'; give a number above 0 and up to 87600"),
        (["api", "--port", "http"], "'--port': 'http'; give a whole number from 0 to 65535"),
    ],
)
def test_where_a_number_may_not_stand_it_says_which_may(
    capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: Invalid value for {sentence}: see `outbox ")


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("retri", "there is no command 'retri': write `outbox retry`"),
        ("statsu", "there is no command 'statsu': write `outbox status`"),
        ("xyz", "there is no command 'xyz': see `outbox --help`"),
    ],
)
def test_for_a_misspelt_command_the_nearest_is_named(
    capsys: pytest.CaptureFixture[str], typed: str, sentence: str
) -> None:
    assert run(capsys, typed) == (2, "", f"error: {sentence}\n")


def test_without_a_checkout_nothing_is_measured_and_it_says_where(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_kernel.infrastructure.cli.bench.find_spec", lambda _: None)
    sentence = "there are no benchmarks here: run `outbox bench` in a checkout of the repository"
    assert run(capsys, "bench") == (1, "", f"error: {sentence}\n")
    monkeypatch.undo()
    code, _, err = run(capsys, "bench")
    assert code == 2
    assert "Usage: outbox bench" in err
