"""The group of commands, each imported when it is called, and the one place where an error meets a user."""

from __future__ import annotations

import errno
import json
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, cast

import click

from outbox_kernel.infrastructure.cli import leaving
from outbox_kernel.infrastructure.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

# Where each command is, and what the list of commands says of it.
COMMANDS = {
    "api": (
        "api:command",
        "Serve the API of the contexts, until told to stop.",
    ),
    "bench": ("bench:command", "Measure this checkout on this machine."),
    "consume": (
        "consume:command",
        "Handle what arrives in queues, until told to stop.",
    ),
    "dashboard": (
        "dashboard:command",
        "Serve the dashboard, until told to stop.",
    ),
    "dead-letters": (
        "dead_letters:command",
        "List or replay what a broker's queue holds as dead.",
    ),
    "demo": ("demo:command", "Show it at work, on an embedded PostgreSQL."),
    "dev": (
        "dev:command",
        "API, relay, dashboard and a database that stays, for development.",
    ),
    "doctor": ("doctor:command", "Look at everything, and say what to do."),
    "events": ("stories:events", "List events, the newest first."),
    "failed": (
        "stories:failed",
        "List what is dead or will be tried again.",
    ),
    "forget": ("forget:command", "Destroy the key of whoever is to be forgotten."),
    "history": (
        "stories:history",
        "Tell everything that happened to an aggregate.",
    ),
    "keys": ("keys:command", "Master keys of sealed fields: make one, rotate."),
    "migrate": (
        "migrate:command",
        "Create or update the tables of the outbox and of the contexts.",
    ),
    "pause": (
        "subscriptions:pause",
        "Hold a handler: what is due for it waits.",
    ),
    "purge": ("purge:command", "Delete what was delivered long ago."),
    "relay": (
        "relay:command",
        "Deliver events to handlers, until told to stop.",
    ),
    "replay": ("subscriptions:replay", "Give a handler the past, in order."),
    "resume": ("subscriptions:resume", "Let a handler go on."),
    "retire": (
        "subscriptions:retire",
        "End a handler that no live relay carries.",
    ),
    "retry": ("mend:retry", "Run again what failed or was skipped."),
    "show": ("stories:show", "Show one event's whole story."),
    "skip": ("mend:skip", "Let an event pass without its handler's effect."),
    "status": (
        "status:command",
        "Show the relays, the backlog and the subscriptions.",
    ),
    "telemetry": (
        "telemetry:command",
        "Print a dashboard, or alerts, for its metrics.",
    ),
    "token": ("token:command", "Make a token to try the API with."),
    "topology": (
        "topology:command",
        "Check or declare exchanges and queues.",
    ),
}

# What the file, the disk or the device behind our output may answer; never a defect of ours.
_OUTPUT_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_HELP = frozenset(("-h", "--help", "--version"))

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
        return cast("click.Command", getattr(import_module(f"{__package__}.{module}"), attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the one that is called, or say which may be meant."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = get_close_matches(args[0], COMMANDS, n=1)
            if near:
                raise click.UsageError(f"there is no command {args[0]!r}: write `outbox {near[0]}`")
            raise click.UsageError(f"there is no command {args[0]!r}", ctx)
        return super().resolve_command(ctx, args)

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
    if arguments is None:
        leaving.take_process()
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in words
    try:
        _refuse_misspelt_settings(words)
        leaving.end(_run(words))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _fail(_sentence_of(error), type(error).__name__, as_json=as_json, code=error.exit_code)
    except click.Abort:
        _fail("interrupted", "Interrupted", as_json=as_json, code=EXIT_INTERRUPTED)
    except OSError as error:
        _give_up_output(error, as_json=as_json)
    except Exception as error:
        from outbox_kernel.kernel.errors import KernelError

        if not isinstance(error, KernelError):
            leaving.end_with_traceback(error)
            raise
        _fail(str(error), type(error).__name__, as_json=as_json)


def _refuse_misspelt_settings(words: Sequence[str]) -> None:
    """Whoever asks for help, or types nothing, gets help."""
    if words and not _HELP.intersection(words):
        from outbox_kernel.infrastructure.environment import refuse_unknown_names

        refuse_unknown_names()


def _run(words: list[str]) -> int:
    """Run the command and see its output out: what fails at the interpreter's own last flush, nobody catches."""
    try:
        return outbox.main(args=words, prog_name="outbox", standalone_mode=False) or 0
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()


def _give_up_output(error: OSError, *, as_json: bool) -> NoReturn:
    """End as a program should whose output is not taken; any other failure is raised again."""
    if not isinstance(error, BrokenPipeError) and error.errno not in _OUTPUT_REFUSED:
        raise error
    # Let nothing fail once more on the last flush.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        # Whoever read it has left, as `head` does, and wants to hear nothing.
        leaving.end(EXIT_FAILED)
    sentence = f"what this prints cannot be written ({error.strerror}): make room, or send it elsewhere"
    _fail(sentence, "OutputRefused", as_json=as_json)


def _sentence_of(error: click.ClickException) -> str:
    sentence = error.format_message().rstrip(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{sentence}: see `{error.ctx.command_path} --help`"
    return sentence


def _fail(sentence: str, kind: str, *, as_json: bool, code: int = EXIT_FAILED) -> NoReturn:
    """Say it on stderr, where it mixes with no output that a program reads."""
    line = json.dumps({"error": sentence, "kind": kind}) if as_json else f"error: {printable(sentence)}"
    click.echo(line, err=True)
    leaving.end(code)
