"""The group of commands, each imported when it is called, and the one place where an error meets a user."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

import click

from infrastructure.installation import shadowing_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

# Where each command is, and what the list of commands says of it.
COMMANDS = {
    "bench": ("infrastructure.cli.bench:command", "Measure this checkout on this machine."),
    "demo": ("infrastructure.cli.demo:command", "Show it at work, on an embedded PostgreSQL."),
    "migrate": (
        "infrastructure.cli.migrate:command",
        "Create or update the tables of the outbox and of the contexts.",
    ),
}

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that imports a command only when it is wanted, so that `--help` need not load SQLAlchemy."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name them."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the one that is called."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List them without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click calls it so
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"outbox-kernel {version('outbox-kernel')}")
    except PackageNotFoundError:
        click.echo("outbox-kernel, from a checkout that is not installed")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
def outbox() -> None:
    """Domain events that commit with the change they tell of.

    The database is DATABASE_URL; OUTBOX_SCHEMA names the schema of the outbox's tables, OUTBOX_CONTEXTS
    the packages of the bounded contexts (by default, every package under `contexts` in this folder).
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; a user's mistake ends in one sentence and a code, never in a traceback."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in words
    # The application's `contexts` are found from its folder, as with `python -m`; a foreign `kernel` too.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if sentence := shadowing_sentence():
        _fail(sentence, "Shadowed", as_json=as_json)
    try:
        sys.exit(outbox.main(args=words, prog_name="outbox", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _fail(_sentence_of(error), type(error).__name__, as_json=as_json, code=error.exit_code)
    except click.Abort:
        _fail("interrupted", "Interrupted", as_json=as_json, code=EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has left, as `head` does; let nothing fail on the last flush either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except Exception as error:
        from kernel.errors import KernelError

        if not isinstance(error, KernelError):
            raise
        _fail(str(error), type(error).__name__, as_json=as_json)


def _sentence_of(error: click.ClickException) -> str:
    sentence = error.format_message().rstrip(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{sentence}: see `{error.ctx.command_path} --help`"
    return sentence


def _fail(sentence: str, kind: str, *, as_json: bool, code: int = EXIT_FAILED) -> NoReturn:
    """Say it on stderr, where it mixes with no output that a program reads."""
    line = json.dumps({"error": sentence, "kind": kind}) if as_json else f"error: {sentence}"
    click.echo(line, err=True)
    sys.exit(code)
