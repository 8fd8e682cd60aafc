"""`outbox pause`, `resume`, `retire`, `replay`: what to do about a handler as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click

from outbox_kernel.infrastructure.cli.at_desk import MOMENT, TEXT, ask_first, at_desk, yes_option
from outbox_kernel.infrastructure.cli.output import json_option, print_json, progress
from outbox_kernel.infrastructure.operations import replaying, subscriptions
from outbox_kernel.infrastructure.operations.selection import NothingFound
from outbox_kernel.infrastructure.plain_text import count, printable

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.operations import Desk
    from outbox_kernel.infrastructure.operations.replaying import Replayed
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
    ask_first(f"retire {printable(what)}, and skip what waits for it?", unasked=yes or as_json)

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
@click.option(
    "--handler", "name", type=TEXT, required=True, metavar="NAME", help="Who is to handle the past."
)
@click.option("--since", type=MOMENT, required=True, help="Since when: a moment, or an age such as 7d.")
@click.option("--again", is_flag=True, help="Also what it has handled already.")
@json_option
def replay(*, name: str, since: Moment, again: bool, as_json: bool) -> None:
    """Give a handler the events of the past that it is for and never had, in order.

    What it has handled is known by its receipts: a handler that commits nothing leaves none, so say for it
    exactly since when. Events that are not claimed yet, or in a relay's hands, are left alone.
    """

    async def work(desk: Desk) -> Replayed:
        with progress("replay") as begin:
            return await replaying.replay(desk, name, await since.resolved(desk), again=again, begin=begin)

    replayed = at_desk(work)
    if as_json:
        print_json(attrs.asdict(replayed))
    else:
        click.echo(
            f"{count(replayed.due, 'delivery', 'deliveries')} made due, "
            f"of {count(replayed.matching, 'event')} for {name}"
        )
        if replayed.in_flight:
            click.echo(
                f"{count(replayed.in_flight, 'event')} not delivered yet and left to the relays", err=True
            )
    if not replayed.matching:
        raise NothingFound(f"no event for {name} is that young: give an earlier --since")


def _tell(name: str, word: str, *, changed: bool, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "changed": changed})
    else:
        click.echo(f"{name} is {word}")
