"""`outbox dashboard`: the dashboard in a process of its own, for this machine unless somebody says who asks (O3)."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.cli.at_desk import TEXT
from outbox_kernel.infrastructure.cli.limits import GRACE_SECONDS
from outbox_kernel.infrastructure.cli.numbers import Whole
from outbox_kernel.infrastructure.cli.output import json_option
from outbox_kernel.infrastructure.cli.serving import run_loop
from outbox_kernel.infrastructure.dashboard.security import is_loopback
from outbox_kernel.infrastructure.errors import MissingExtra
from outbox_kernel.infrastructure.operations.masking import know_events
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.telemetry import set_up_logs

if TYPE_CHECKING:
    import socket
    from contextlib import AsyncExitStack

    from starlette.types import ASGIApp

    from outbox_kernel.infrastructure.dashboard import Dashboard
    from outbox_kernel.infrastructure.dashboard.app import Authorize

PORT = 8001
KEY_VARIABLE = "OUTBOX_DASHBOARD_KEY"


@click.command("dashboard")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen; beyond this machine only with --authorize.",
)
@click.option(
    "--port",
    type=Whole(0, 65_535),
    default=PORT,
    show_default=True,
    help="0 takes any that is free.",
)
@click.option(
    "--authorize",
    type=TEXT,
    metavar="MODULE:FUNCTION",
    help="Who says who asks: given a request, it returns an Operator, or None.",
)
@click.option(
    "--prefix", type=TEXT, default="/", metavar="PATH", help="The path below which a proxy shows it."
)
@json_option
def command(*, host: str, port: int, authorize: str | None, prefix: str, as_json: bool) -> None:
    """Serve the dashboard, until SIGTERM or SIGINT.

    It answers this machine alone unless --authorize names who is let in. Forms are known by a key of this process, or
    by OUTBOX_DASHBOARD_KEY, which several behind one address share. What is done is in the log, with who did it.
    """
    if find_spec("uvicorn") is None:
        raise MissingExtra("dashboard", "what serves the dashboard")
    asked = None if authorize is None else loaded(authorize)
    if asked is None:
        require_this_machine(host)
    # How relays are set up is no business of who looks on.
    outbox = Outbox(relay_settings=RelaySettings())
    key = os.environ.get(KEY_VARIABLE, "").strip() or None
    dashboard = outbox.dashboard(authorize=asked, prefix=prefix, key=key)
    know_events(outbox.settings)
    set_up_logs(as_json=as_json or None)
    # uvicorn is of the extra, too.
    from outbox_kernel.infrastructure.addresses import listen

    with closing(listen(host, port)) as listening:
        run_loop(_serve(outbox, dashboard, listening, as_json=as_json))


async def _serve(outbox: Outbox, dashboard: Dashboard, listening: socket.socket, *, as_json: bool) -> None:
    from outbox_kernel.infrastructure.addresses import url_of
    from outbox_kernel.infrastructure.cli.web_service import serve_until_stopped
    from outbox_kernel.infrastructure.web import WebServer

    async def assemble(ending: AsyncExitStack) -> ASGIApp:
        ending.push_async_callback(outbox.close)
        await dashboard.check()
        return dashboard

    def tell() -> None:
        address = f"{url_of(listening)}/"
        click.echo(
            json.dumps({"url": address}) if as_json else f"The dashboard is at {address}\n\nCtrl-C stops it."
        )

    await serve_until_stopped(
        listening,
        assemble,
        lambda served: WebServer(served, GRACE_SECONDS),
        what="dashboard",
        on_started=tell,
        on_stop=dashboard.close,
    )


def require_this_machine(host: str) -> None:
    """Refuse an address at which others would be answered, with nobody who says who they are."""
    if host != "localhost" and not is_loopback(host):
        raise click.UsageError(
            f"without --authorize only this machine itself is answered, and {host} is for others, too: name the "
            "function that says who asks, or leave --host out"
        )


def loaded(path: str) -> Authorize:
    """Import what MODULE:FUNCTION names."""
    module, _, name = path.partition(":")
    # As `python -m` has it: an application's own modules lie where it is started.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, ValueError, AttributeError) as error:
        if isinstance(error, MissingExtra):
            raise
        raise click.BadParameter(
            f"{path!r} cannot be imported ({error}): write MODULE:FUNCTION, such as shop.access:authorize",
            param_hint="--authorize",
        ) from error
    if not callable(found):
        raise click.BadParameter(
            f"{path!r} is nothing that can be called with a request", param_hint="--authorize"
        )
    authorize: Authorize = found
    return authorize
