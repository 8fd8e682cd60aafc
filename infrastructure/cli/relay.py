"""`outbox relay`: deliver the outbox's events to the handlers of this application, until told to stop."""

from __future__ import annotations

import asyncio
import logging
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import attrs
import click

from outbox_kernel.infrastructure.brokers.carrying import publishers_of
from outbox_kernel.infrastructure.brokers.discovery import undeclared_queues
from outbox_kernel.infrastructure.cli.output import json_option, print_json, print_rows
from outbox_kernel.infrastructure.cli.serving import (
    database_ready,
    freeze_what_stays,
    run_loop,
    stopped_by_signals,
)
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.database.engine import create_engine, parse_url
from outbox_kernel.infrastructure.discovery import context_packages
from outbox_kernel.infrastructure.errors import InfrastructureError, NothingToDeliverTo
from outbox_kernel.infrastructure.relay import OutboxRelay, RelaySettings
from outbox_kernel.infrastructure.relay.roster import check_buildable
from outbox_kernel.infrastructure.relay.serving import CancelledByOthers
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.infrastructure.telemetry import set_up_logs
from outbox_kernel.kernel import check_upcasters, discover_handlers
from outbox_kernel.kernel.handlers import registered_handlers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lagom import Container
    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.brokers import Outlet, Publisher
    from outbox_kernel.infrastructure.relay.ledger import Counts

_log = logging.getLogger("outbox.start")

# Handlers hold a connection for the length of a transaction, not of a run.
POOL_SIZE_MAX = 20


class PublishersPaused(InfrastructureError):
    """What is for a broker is left, since that takes nothing; `names` are the publishers."""

    def __init__(self, paused: Mapping[str, str]) -> None:
        self.names = tuple(sorted(paused))
        who = ", ".join(map(repr, self.names))
        one = len(self.names) == 1
        reasons = "; ".join(dict.fromkeys(paused[name] for name in self.names))
        super().__init__(
            f"publisher{'' if one else 's'} {who} {'is' if one else 'are'} paused, so what is for "
            f"{'it' if one else 'them'} waits: {reasons}"
        )


@click.command("relay")
@click.option("--wait", is_flag=True, help="Wait for a database that does not answer or is not migrated yet.")
@click.option("--once", is_flag=True, help="Deliver what is due now, print what became of it, and end.")
@json_option
def command(*, wait: bool, once: bool, as_json: bool) -> None:
    """Deliver events to the handlers of the contexts, until SIGTERM or SIGINT.

    Start as many as you like, on as many machines as you like. Told to stop, it finishes what is running and
    gives back the rest; told twice, it ends at once. Logs go to standard error, as JSON lines unless that is a
    terminal or with --json.
    """
    settings, relay_settings = Settings.from_environment(), RelaySettings.from_environment()
    if relay_settings.listen_url is not None:
        parse_url(relay_settings.listen_url, "OUTBOX_LISTEN_URL")
    set_up_logs(as_json=as_json or None)
    done = run_loop(_run(settings, relay_settings, wait=wait, once=once))
    if done is None:
        return
    counts, paused = done
    row = attrs.asdict(counts)
    print_json(row) if as_json else print_rows([{"what": name, "number": row[name]} for name in row])
    if paused:
        raise PublishersPaused(paused)


async def _run(
    settings: Settings, relay_settings: RelaySettings, *, wait: bool, once: bool
) -> tuple[Counts, Mapping[str, str]] | None:
    engine = relay_engine(settings, relay_settings)
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs is a task's
    serving: OutboxRelay | None = None
    told = False

    def stop() -> None:
        nonlocal told
        told = True
        if serving is None:
            task.cancel()
        else:
            serving.stop()

    try:
        with stopped_by_signals(stop):
            relay = await _made(settings, relay_settings, engine, wait=wait)
            if once:
                return await relay.run_until_idle(), relay.paused
            serving = relay
            freeze_what_stays()
            _log.info("relay starts", extra=_about(relay_settings))
            await relay.run()
            if not told:
                raise CancelledByOthers("the relay")
            _log.info("relay has stopped")
    except asyncio.CancelledError:
        if task.uncancel() > 0:
            raise
        _log.info("stopped before it had begun, or while it delivered once")
    finally:
        await engine.dispose()
    return None


async def _made(
    settings: Settings, relay_settings: RelaySettings, engine: AsyncEngine, *, wait: bool
) -> OutboxRelay:
    publishers = publishers_of(settings)
    container = await prepared(settings, engine)
    if sentence := lacking(settings, publishers):
        raise NothingToDeliverTo(sentence)
    await database_ready(engine, settings, wait=wait)
    return OutboxRelay(
        engine, container, schema=settings.outbox_schema, publishers=publishers, settings=relay_settings
    )


async def prepared(settings: Settings, engine: AsyncEngine) -> Container:
    """Load the application; what is wrong with it needs no database to be found."""
    container = build_container(settings, engine)
    handlers = discover_handlers(context_packages(settings))
    check_upcasters()
    await check_buildable((each for each in handlers if each.queue is None), container)
    for sentence in undeclared_queues(settings, handlers):
        _log.warning("%s", sentence)
    return container


def lacking(settings: Settings, publishers: Mapping[Publisher, Outlet]) -> str | None:
    """Say what to do where nothing that has been loaded takes events: a relay would mark them all as delivered."""
    if publishers or any(each.queue is None for each in registered_handlers()):
        return None
    packages = ", ".join(context_packages(settings)) or "none"
    return (
        f"there is nothing to deliver events to, neither a handler nor, by RABBITMQ_URL, a publisher (contexts: "
        f"{packages}): name the packages of the contexts in OUTBOX_CONTEXTS, or run this in the folder of `contexts`"
    )


def relay_engine(settings: Settings, relay_settings: RelaySettings) -> AsyncEngine:
    """Make the engine of a relay and of the handlers that it runs.

    A relay that is stopped within a transaction must not hold others up for longer than its lease: the server
    ends such a session by itself.
    """
    patience = f"{relay_settings.lease_seconds * 1_000:.0f}ms"
    return create_engine(
        settings.required_database_url,
        session_defaults={
            "application_name": "outbox-kernel relay",
            "idle_in_transaction_session_timeout": patience,
        },
        pool_size=min(relay_settings.concurrency, POOL_SIZE_MAX),
        max_overflow=0,
    )


def _about(relay_settings: RelaySettings) -> dict[str, object]:
    try:
        ours = version("outbox-kernel")
    except PackageNotFoundError:
        ours = "a checkout"
    return {
        "outbox_kernel": ours,
        "code_version": relay_settings.code_version,
        "concurrency": relay_settings.concurrency,
        "poll_interval_seconds": relay_settings.poll_interval_seconds,
        "lease_seconds": relay_settings.lease_seconds,
    }
