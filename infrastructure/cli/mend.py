"""`outbox retry` and `outbox skip`: what to do about what failed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import click

from outbox_kernel.infrastructure.cli.at_desk import AGGREGATE, EVENT, TEXT, ask_first, at_desk, yes_option
from outbox_kernel.infrastructure.cli.output import json_option, print_json, progress
from outbox_kernel.infrastructure.operations import Selection, mending
from outbox_kernel.infrastructure.operations.finding import id_of
from outbox_kernel.infrastructure.operations.selection import NothingFound
from outbox_kernel.infrastructure.plain_text import count

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from outbox_kernel.infrastructure.operations import AggregateKey, Desk
    from outbox_kernel.infrastructure.operations.mending import Change, Chosen


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which deliveries are meant."""
    for add in reversed(
        (
            click.argument("event", type=EVENT, required=False),
            click.option("--handler", type=TEXT, metavar="NAME", help="Only deliveries to this handler."),
            click.option("--aggregate", type=AGGREGATE, help="Only those of this aggregate: TYPE:ID, or ID."),
            click.option(
                "--type",
                "event_type",
                type=TEXT,
                metavar="TYPE",
                help="Only events of this type, * for any part.",
            ),
            click.option("--all", "everything", is_flag=True, help="Everything that failed."),
            yes_option,
            json_option,
        )
    ):
        command = add(command)
    return command


@click.command("retry")
@selecting
@click.option("--skipped", is_flag=True, help="Undo skips as well; of a single event they are undone anyway.")
@click.option(
    "--again",
    is_flag=True,
    help="Also what is dead of a second commit: its first effect, which is there, happens once more.",
)
def retry(*, skipped: bool, again: bool, yes: bool, as_json: bool, **words: Any) -> None:
    """Run again, from the start and in order, what is dead or waits for another attempt.

    Name one EVENT by its id or its position, or say which by --handler, --aggregate, --type, or --all.
    """
    selected = _selected(**words)

    async def choose(desk: Desk) -> list[Chosen]:
        return await mending.choose_for_retry(desk, await selected(desk), skipped=skipped)

    _change("retry", "retried", choose, partial(mending.retry, again=again), yes=yes, as_json=as_json)


@click.command("skip")
@selecting
@click.option(
    "--waiting", is_flag=True, help="Also what has not failed, such as what stands behind a dead delivery."
)
def skip(*, waiting: bool, yes: bool, as_json: bool, **words: Any) -> None:
    """Let events pass without their handler's effect, so that later ones get their turn.

    Name one EVENT by its id or its position, or say which by --handler, --aggregate, --type, or --all: then it is
    what failed. EVENT --handler NAME is also for an event that the handler has yet to come to. `outbox retry`
    undoes it.
    """
    selected = _selected(**words)

    async def choose(desk: Desk) -> list[Chosen]:
        return await mending.choose_for_skip(desk, await selected(desk), all_waiting=waiting)

    _change("skip", "skipped", choose, mending.skip, yes=yes, as_json=as_json)


def _selected(
    *,
    event: UUID | int | None,
    handler: str | None,
    aggregate: AggregateKey | None,
    event_type: str | None,
    everything: bool,
) -> Callable[[Desk], Awaitable[Selection]]:
    many = aggregate is not None or event_type is not None or everything
    if event is None and handler is None and not many:
        raise click.UsageError(
            "say which: an event's id or position, --handler, --aggregate, --type, or --all",
            click.get_current_context(),
        )
    if event is not None and many:
        raise click.UsageError(
            "EVENT goes with --handler alone: it names one event already", click.get_current_context()
        )

    async def selected(desk: Desk) -> Selection:
        event_id = None if event is None else await id_of(desk, event)
        return Selection(event_id, handler, aggregate, event_type)

    return selected


def _change(
    verb: str,
    done: str,
    choose: Callable[[Desk], Any],
    change: Callable[[Desk, Sequence[Chosen], Callable[[int], None]], Any],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    async def work(desk: Desk) -> Change:
        with progress(verb) as begin:
            result: Change = await change(desk, chosen, begin(len(chosen)))
            return result

    chosen: Sequence[Chosen] = at_desk(choose)
    if not chosen:
        raise NothingFound(f"there is nothing to {verb}: `outbox failed` lists what failed")
    # Between the two: an event loop that waits for an answer hears no Ctrl-C, and an idle session may be ended.
    ask_first(f"{verb} {count(len(chosen), 'delivery', 'deliveries')}?", unasked=yes or len(chosen) == 1)
    result = at_desk(work)
    if as_json:
        print_json({done: result.changed, **attrs.asdict(result), "left": result.left})
    else:
        click.echo(f"{count(result.changed, 'delivery', 'deliveries')} {done}")
    if result.half_done and not as_json:
        click.echo(
            f"{count(result.half_done, 'delivery', 'deliveries')} left half done: a first effect has committed, which "
            "`outbox retry --again` lets happen once more; `outbox skip` leaves it at that",
            err=True,
        )
    if result.left and not as_json:
        click.echo(
            f"{count(result.left, 'delivery', 'deliveries')} had gone on meanwhile and were left", err=True
        )
