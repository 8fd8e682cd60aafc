"""`outbox relay`: deliver the outbox's events to the handlers of this application, until told to stop."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import attrs
import click

from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.cancelling import CancelledByOthers
from outbox_kernel.infrastructure.cli.output import json_option, print_json, print_rows
from outbox_kernel.infrastructure.cli.serving import freeze_what_stays, run_loop, stopped_by_signals
from outbox_kernel.infrastructure.cli.telling import metrics_option, telemetry_settings, told_of
from outbox_kernel.infrastructure.errors import InfrastructureError
from outbox_kernel.infrastructure.hosting import about_relay
from outbox_kernel.infrastructure.telemetry import set_up_logs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outbox_kernel.infrastructure.outbox.delivery import Counts
    from outbox_kernel.infrastructure.relay import OutboxRelay

_log = logging.getLogger("outbox.start")


class StandsStill(InfrastructureError):
    """What needs something that is away is left for later; `names` are the publishers and handlers."""

    def __init__(self, paused: Mapping[str, str]) -> None:
        self.names = tuple(sorted(paused))
        who = ", ".join(map(repr, self.names))
        one = len(self.names) == 1
        reasons = "; ".join(dict.fromkeys(paused[name] for name in self.names))
        super().__init__(
            f"{who} {'stands' if one else 'stand'} still, so what is for {'it' if one else 'them'} waits: {reasons}"
        )


@click.command("relay")
@click.option("--wait", is_flag=True, help="Wait for a database that does not answer or is not migrated yet.")
@click.option("--once", is_flag=True, help="Deliver what is due now, print what became of it, and end.")
@metrics_option
@json_option
def command(*, wait: bool, once: bool, metrics: str | None, as_json: bool) -> None:
    """Deliver events to the handlers of the contexts, until SIGTERM or SIGINT.

    Start as many as you like, on as many machines as you like. Told to stop, it finishes what is running and
    gives back the rest; told twice, it ends at once. Logs go to standard error, as JSON lines unless that is a
    terminal or with --json.
    """
    outbox = Outbox(telemetry=telemetry_settings(metrics))
    set_up_logs(as_json=as_json or None)
    done = run_loop(_run(outbox, wait=wait, once=once))
    if done is None:
        return
    counts, paused = done
    row = attrs.asdict(counts)
    print_json(row) if as_json else print_rows([{"what": name, "number": row[name]} for name in row])
    if paused:
        raise StandsStill(paused)


async def _run(outbox: Outbox, *, wait: bool, once: bool) -> tuple[Counts, Mapping[str, str]] | None:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine that runs is a task's
    serving: OutboxRelay | None = None
    telling = AsyncExitStack()
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
            await telling.enter_async_context(told_of(outbox, "outbox-relay"))
            relay = await outbox.ready_relay(wait=wait)
            if once:
                return await relay.run_until_idle(), relay.paused
            serving = relay
            freeze_what_stays()
            await _serve(relay, outbox)
            if not told:
                raise CancelledByOthers("the relay")
            _log.info("relay has stopped", extra={"action": "relay.stopped"})
    except asyncio.CancelledError:
        if task.uncancel() > 0:
            raise
        _log.info(
            "stopped before it had begun, or while it delivered once",
            extra={"action": "relay.stopped_early"},
        )
    finally:
        await telling.aclose()
        await outbox.close()
    return None


async def _serve(relay: OutboxRelay, outbox: Outbox) -> None:
    async def tell() -> None:
        # Not before: what commits from now on is due, and nothing of what came before a handler's first relay.
        await relay.subscribed.wait()
        _log.info("relay starts", extra={"action": "relay.started", **about_relay(outbox.relay_settings)})

    telling = asyncio.create_task(tell())
    try:
        await relay.run()
    finally:
        telling.cancel()
