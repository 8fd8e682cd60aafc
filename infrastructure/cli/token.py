"""`outbox token`: a token to try the API with."""

from __future__ import annotations

from pathlib import Path

import click

from outbox_kernel.infrastructure.cli.limits import TOKEN_HOURS, TOKEN_HOURS_MAX
from outbox_kernel.infrastructure.cli.numbers import Number
from outbox_kernel.infrastructure.cli.output import json_option, print_json
from outbox_kernel.infrastructure.dev import DevFolder, default_folder
from outbox_kernel.infrastructure.discovery import project_folder
from outbox_kernel.infrastructure.http import HttpSettings
from outbox_kernel.infrastructure.http.tokens import sign


@click.command("token")
@click.argument("subject")
@click.option(
    "--hours",
    type=Number(0, TOKEN_HOURS_MAX, min_open=True),
    default=TOKEN_HOURS,
    show_default=True,
    help="How long it lasts.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Where that `outbox dev` keeps its data, if not by default.",
)
@json_option
def command(*, subject: str, hours: float, folder: Path | None, as_json: bool) -> None:
    """Print a token for the user whose id is SUBJECT, signed with OUTBOX_API_TOKEN_KEY or with the key of `outbox dev`.

    For development and tests: in production tokens come from your identity provider.
    """
    http = HttpSettings.from_environment()
    kept = DevFolder(folder or default_folder(project_folder()))
    token = sign(
        http.token_key or kept.token_key() or http.required_token_key,
        subject,
        lasts_seconds=hours * 3600,
        issuer=http.token_issuer,
        audience=http.token_audience,
    )
    print_json({"token": token}) if as_json else click.echo(token)
