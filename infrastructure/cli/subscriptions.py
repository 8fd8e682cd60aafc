"""`outbox pause`, `resume`, `retire`, `replay`: what to do about a handler as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import click

from outbox_kernel.infrastructure.cli.at_desk import (
    AGGREGATE,
    EVENT,
    MOMENT,
    POSITION,
    TEXT,
    ask_first,
    at_desk,
    yes_option,
)
from outbox_kernel.infrastructure.cli.output import json_option, print_json, progress
from outbox_kernel.infrastructure.operations import replaying, subscriptions
from outbox_kernel.infrastructure.operations.finding import id_of
from outbox_kernel.infrastructure.operations.selection import NothingFound
from outbox_kernel.infrastructure.plain_text import count, printable

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_kernel.infrastructure.operations import AggregateKey, Desk
    from outbox_kernel.infrastructure.operations.replaying import Replayed, Rewound
    from outbox_kernel.infrastructure.operations.selection import Moment


@click.command("pause")
@click.argument("name", type=TEXT)
@json_option
def pause(*, name: str, as_json: bool) -> None:
    """Hold the handler or publisher NAME: what is due for it waits, in order, until `outbox resume`."""
    changed = at_desk(lambda desk: subscriptions.pause(desk, name))
    _tell(name, "paused" if changed else "paused already", changed=changed, as_json=as_json)


@click.command("resume")
@click.argument("name", type=TEXT)
@json_option
def resume(*, name: str, as_json: bool) -> None:
    """Let the handler or publisher NAME go on."""
    changed = at_desk(lambda desk: subscriptions.resume(desk, name))
    _tell(name, "resumed" if changed else "not paused", changed=changed, as_json=as_json)


@click.command("retire")
@click.argument("name", type=TEXT)
@click.option("--pattern", type=TEXT, help="End this pattern alone, written as `outbox status` shows it.")
@yes_option
@json_option
def retire(*, name: str, pattern: str | None, yes: bool, as_json: bool) -> None:
    """End the handler or publisher NAME, or one PATTERN of it, once no live relay carries that.

    What waits for it is skipped.
    """
    what = name if pattern is None else f"{pattern} of {name}"
    ask_first(f"retire {printable(what)}, and skip what waits for it?", unasked=yes)

    async def work(desk: Desk) -> subscriptions.Retired:
        with progress("retire") as begin:
            if pattern is not None:
                return await subscriptions.retire_pattern(desk, name, pattern, begin)
            return await subscriptions.retire(desk, name, begin)

    ended = at_desk(work)
    if as_json:
        about = {"name": name} if pattern is None else {"name": name, "pattern": pattern}
        print_json({**about, "changed": ended.newly, "skipped": ended.skipped})
        return
    word = "retired" if ended.newly else "retired already"
    click.echo(f"{what} is {word}, {count(ended.skipped, 'delivery', 'deliveries')} skipped")


@click.command("replay")
@click.argument("name", type=TEXT)
@click.option("--since", type=MOMENT, help="All that was stored since: a moment, or an age such as 7d.")
@click.option("--from-position", "position", type=POSITION, help="All from this position on.")
@click.option("--event", type=EVENT, help="This event alone, by its id or its position.")
@click.option("--aggregate", type=AGGREGATE, help="The events of this aggregate alone: TYPE:ID, or ID.")
@click.option("--again", is_flag=True, help="Let effects that have happened happen again.")
@json_option
def replay(*, name: str, again: bool, as_json: bool, **words: Any) -> None:
    """Give the handler or publisher NAME the past again, in order: say from where on, or which events.

    Its receipts keep effects from happening twice, unless --again is said. Only what has a receipt is known to be
    handled: a handler that commits nothing leaves none, and its effects happen again without --again as well.
    """
    if sum(word is not None for word in words.values()) != 1:
        raise click.UsageError(
            "say which: --since, --from-position, --event or --aggregate", click.get_current_context()
        )
    if words["since"] is None and words["position"] is None:
        _replay_some(name, words["event"], words["aggregate"], again=again, as_json=as_json)
    else:
        _rewind(name, words["since"], words["position"], again=again, as_json=as_json)


def _rewind(name: str, since: Moment | None, position: int | None, *, again: bool, as_json: bool) -> None:
    async def work(desk: Desk) -> Rewound:
        first = position or 1
        if since is not None:
            first = await since.position(desk)
        with progress("replay") as begin:
            return await replaying.rewind(desk, name, first, again=again, begin=begin)

    found = at_desk(work)
    if not found.shards and not found.events:
        raise NothingFound(
            f"no event for {name} is that young: say --since or --from-position of an earlier one"
        )
    if as_json:
        print_json(attrs.asdict(found))
        return
    where = (
        f"goes on from position {found.position}"
        if found.shards
        else f"has yet to come to position {found.position}, and is left where it is"
    )
    events = f"{'at least ' if found.is_at_least else ''}{count(found.events, 'event')}"
    click.echo(f"{name} {where}: {events} to go")


def _replay_some(
    name: str, event: UUID | int | None, aggregate: AggregateKey | None, *, again: bool, as_json: bool
) -> None:
    async def work(desk: Desk) -> Replayed:
        event_id = None if event is None else await id_of(desk, event)
        return await replaying.replay(desk, name, event_id=event_id, aggregate=aggregate, again=again)

    found = at_desk(work)
    if as_json:
        print_json(attrs.asdict(found))
        return
    click.echo(
        f"{count(found.due, 'delivery', 'deliveries')} made due, of {count(found.matching, 'event')} for {name}"
    )
    if found.ahead:
        click.echo(f"{count(found.ahead, 'event')} it has yet to come to", err=True)
    if found.due + found.ahead < found.matching and not again:
        click.echo("what it has handled, or is at, is left: --again runs what it has handled", err=True)


def _tell(name: str, word: str, *, changed: bool, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "changed": changed})
    else:
        click.echo(f"{name} is {word}")
