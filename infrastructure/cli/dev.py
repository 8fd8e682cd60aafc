"""`outbox dev`: API, relay, dashboard and a PostgreSQL that keeps its data, in one command (O1, O2)."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click

from outbox_kernel.infrastructure.addresses import listen, url_of
from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.cli.api import HOST_VARIABLE, Service, address_options, http_settings
from outbox_kernel.infrastructure.cli.beside import DASHBOARD, beside_api
from outbox_kernel.infrastructure.cli.limits import DEV_TOKEN_SECONDS
from outbox_kernel.infrastructure.cli.output import json_option
from outbox_kernel.infrastructure.cli.serving import run_loop
from outbox_kernel.infrastructure.dev import DevFolder, default_folder
from outbox_kernel.infrastructure.discovery import project_folder
from outbox_kernel.infrastructure.http.app import DOCS
from outbox_kernel.infrastructure.http.example import curl_line
from outbox_kernel.infrastructure.http.tokens import sign
from outbox_kernel.infrastructure.postgres.embedded import EmbeddedPostgres
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.infrastructure.telemetry import TelemetrySettings, set_up_logs

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from outbox_kernel.infrastructure.http import HttpSettings

# Who the printed token is for; `outbox token` makes those of others.
DEVELOPER = "01890a5d-ac96-774b-bcce-b302099a8057"


@click.command("dev")
@address_options
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where to keep the data, else beside your other data."
)
@click.option(
    "--sample", is_flag=True, help="Fill it with a sample, and play that: to look at the dashboard with."
)
@json_option
def command(*, host: str | None, port: int | None, folder: Path | None, sample: bool, as_json: bool) -> None:
    """Serve and deliver on a PostgreSQL of its own that keeps its data, until Ctrl-C.

    Migrates, then prints where the API, its documentation and the dashboard are, a line to try it with, and where the
    data is. For development: DATABASE_URL is not used.

    With --sample it is another outbox, in a folder of its own, which shows whatever there can be; nothing is delivered
    in it.
    """
    settings = Settings.from_environment()
    http = http_settings(host=host, port=port, relay=not sample)
    # Its own server needs no other address to listen at.
    relay_settings = attrs.evolve(RelaySettings.from_environment(), listen_url=None)
    set_up_logs(as_json=as_json or None)
    usual = default_folder(project_folder())
    kept = DevFolder(folder or (usual.with_name(f"{usual.name}-sample") if sample else usual))
    with (
        kept.held(),
        closing(listen(http.host, http.port, host_setting=f"--host, or {HOST_VARIABLE}")) as listening,
    ):
        key = http.token_key or kept.made_token_key()
        about = {"url": url_of(listening), "token": _token(key, http), "folder": str(kept.path)}
        with EmbeddedPostgres(kept.database) as server:
            about["database_url"] = server.url
            kept_settings = attrs.evolve(
                settings,
                database_url=server.url,
                master_keys=settings.master_keys or kept.made_master_keys(),
            )
            service = Service(kept_settings, http, relay_settings, key, TelemetrySettings.from_environment())
            run_loop(_serve(service, listening, about, sample=sample, as_json=as_json))


def _token(key: str, http: HttpSettings) -> str:
    return sign(
        key,
        DEVELOPER,
        lasts_seconds=DEV_TOKEN_SECONDS,
        issuer=http.token_issuer,
        audience=http.token_audience,
    )


async def _serve(
    service: Service, listening: socket.socket, about: dict[str, str], *, sample: bool, as_json: bool
) -> None:
    outbox = Outbox(settings=service.settings, relay_settings=service.relay_settings)
    try:
        await outbox.migrate()
        beside = await beside_api(outbox, sample=sample)

        def tell(app: FastAPI) -> None:
            url, token = about["url"], about["token"]
            told = {**about, "docs": url + DOCS, "curl": curl_line(app.openapi(), url, token)}
            if beside is not None:
                told["dashboard"] = f"{url}{DASHBOARD}/"
            click.echo(json.dumps(told) if as_json else _page(told, sample=sample))

        await service.run(listening, wait=False, on_started=tell, beside=beside)
    finally:
        await outbox.close()


def _page(told: dict[str, str], *, sample: bool) -> str:
    dashboard = told.get("dashboard", "not there: run `pip install 'outbox-kernel[dashboard]'`")
    told_of = (
        "beside a sample in which nothing is delivered" if sample else "and what it commits is delivered"
    )
    return f"""
The API is at {told["url"]}, {told_of}.

  documentation  {told["docs"]}
  dashboard      {dashboard}
  data           {told["folder"]}
  database       {told["database_url"]}

Try it, in another terminal:

  {told["curl"]}

Ctrl-C stops all of it; the data stay.
"""
