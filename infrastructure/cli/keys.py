"""`outbox keys`: make a master key, and let the active one encrypt what others have encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from outbox_kernel.infrastructure.cli.at_desk import at_desk
from outbox_kernel.infrastructure.cli.output import json_option, print_json, progress
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.operations import rewrapping
from outbox_kernel.infrastructure.outbox.sealing.requiring import required
from outbox_kernel.infrastructure.plain_text import count
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.operations import Desk
    from outbox_kernel.infrastructure.operations.rewrapping import Rewrapped


@click.group("keys")
def command() -> None:
    """Master keys: they encrypt the keys by which sensitive fields are sealed, and stay outside of the database."""


def _check_name(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name is not None and not MasterKeys.is_name(name):
        raise click.BadParameter("take letters, digits, dots, dashes and underscores, 60 at the most")
    return name


@command.command("new")
@click.option(
    "--id", "name", callback=_check_name, help="What to call it, such as 2026-10; else a random id."
)
@json_option
def new(*, name: str | None, as_json: bool) -> None:
    """Print a new master key, as OUTBOX_MASTER_KEYS takes it: keep it secret, and apart from the database's backups."""
    made = new_master_key(name)
    print_json({"master_key": made}) if as_json else click.echo(made)


@command.command("rotate")
@json_option
def rotate(*, as_json: bool) -> None:
    """Encrypt every subject's key by the active master key, the first of OUTBOX_MASTER_KEYS; nothing is sealed anew.

    Once it says that nothing is left, the other master keys can go. To run it again is no harm.
    """
    masters = required(Settings.from_environment().master_keys)

    async def work(desk: Desk) -> Rewrapped:
        with progress("rotate") as begin:
            return await rewrapping.rewrap(desk, masters, begin)

    found = at_desk(work)
    if as_json:
        print_json({"active": found.active, "rewrapped": found.rewrapped, "left": found.left})
    else:
        click.echo(f"{count(found.rewrapped, 'subject key')} encrypted anew by {found.active}")
        for master, number in found.left.items():
            click.echo(
                f"{count(number, 'subject key')} encrypted by {master}, which OUTBOX_MASTER_KEYS does not name: add "
                "it, and type this again",
                err=True,
            )
    if found.left:
        raise SystemExit(1)
