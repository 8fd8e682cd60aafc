"""`outbox forget`: destroy the key of a subject."""

from __future__ import annotations

import click

from outbox_kernel.infrastructure.cli.at_desk import TEXT, ask_first, at_desk, yes_option
from outbox_kernel.infrastructure.cli.output import json_option, print_json, when
from outbox_kernel.infrastructure.operations import forgetting


@click.command("forget")
@click.argument("subject", type=TEXT)
@yes_option
@json_option
def command(*, subject: str, yes: bool, as_json: bool) -> None:
    """Destroy the key of SUBJECT: what is sealed for it, in the outbox and wherever it was copied, is gone for good.

    SUBJECT is what events have in the field that their sensitive(subject=…) names. Events, their order and receipts
    stay; the sealed fields read as forgotten. What the application's own tables hold is not touched.
    """
    ask_first(f"destroy the key of {subject}? What is sealed for it cannot be had back", unasked=yes)
    found = at_desk(lambda desk: forgetting.forget(desk, subject))
    if as_json:
        print_json(
            {
                "subject": found.subject,
                "forgotten_at": found.forgotten_at,
                "destroyed": found.since is not None,
                "sealed_since": found.since,
            }
        )
    elif found.since is None:
        click.echo(
            f"{found.subject} was forgotten at {when(found.forgotten_at)}, and nothing was sealed for it since"
        )
    else:
        click.echo(
            f"{found.subject} is forgotten: what was sealed for it since {when(found.since)} cannot be read"
        )
