"""The service that `outbox api` runs, in this process: it begins when it can, and a signal ends it well (R11, R14)."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import closing
from typing import Any

import attrs
import httpx
import pytest

from outbox_kernel.infrastructure.addresses import listen, url_of
from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.cli.api import Service
from outbox_kernel.infrastructure.cli.relay import _run
from outbox_kernel.infrastructure.errors import DatabaseUnreachable, NothingToDeliverTo, SchemaNotMigrated
from outbox_kernel.infrastructure.hosting import Hosted
from outbox_kernel.infrastructure.http import HttpSettings
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings
from tests.asking import KEY, bearer
from tests.waiting import until

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


def service(settings: Settings, **http: Any) -> Service:
    return Service(settings, HttpSettings(**http), RelaySettings(poll_interval_seconds=0.05), KEY)


@pytest.mark.parametrize("relay", [False, True], ids=["alone", "with a relay"])
async def test_it_serves_until_a_signal(database: Settings, relay: bool) -> None:
    started = asyncio.Event()
    with closing(listen("127.0.0.1", 0)) as listening:
        url = url_of(listening)
        serving = asyncio.create_task(
            service(database, relay=relay).run(listening, wait=False, on_started=lambda _: started.set())
        )
        await begun(serving, started)
        async with httpx.AsyncClient(base_url=url, headers=bearer()) as client:
            assert (await client.get("/health/ready")).status_code == 200
            answer = await client.post("/accounts", json={"email": f"served{relay}@example.org"})
            assert answer.status_code == 201
            assert "server" not in answer.headers
        os.kill(os.getpid(), signal.SIGTERM)
        await serving


async def test_it_does_not_begin_without_its_database(empty_postgres_url: str) -> None:
    for url, error in ((NOWHERE, DatabaseUnreachable), (empty_postgres_url, SchemaNotMigrated)):
        with closing(listen("127.0.0.1", 0)) as listening, pytest.raises(error):
            await service(Settings(database_url=url)).run(listening, wait=False, on_started=_never)


async def test_while_it_waits_for_its_database_a_signal_ends_it_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with closing(listen("127.0.0.1", 0)) as listening, caplog.at_level("INFO", "outbox.start"):
        waiting = asyncio.create_task(
            service(Settings(database_url=NOWHERE)).run(listening, wait=True, on_started=_never)
        )

        async def waits() -> bool:
            return "waiting for the database" in caplog.text

        await until(waits)
        os.kill(os.getpid(), signal.SIGINT)
        await waiting
    assert "stopped before it had begun" in caplog.text


async def test_with_a_relay_that_has_nothing_to_deliver_to_it_says_so_and_serves(
    database: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R14: an API may be there before its first handler."""
    monkeypatch.setattr("outbox_kernel.infrastructure.application.discover_handlers", lambda _: ())
    started = asyncio.Event()
    with closing(listen("127.0.0.1", 0)) as listening:
        alone = attrs.evolve(database, rabbitmq_url=None)
        serving = asyncio.create_task(
            service(alone, relay=True).run(listening, wait=False, on_started=lambda _: started.set())
        )
        await begun(serving, started)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
    assert "there is nothing to deliver events to" in caplog.text


async def test_a_relay_that_cannot_begin_ends_it_with_the_reason(
    database: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R14: rather than to serve, and to be told unwell by its health alone."""

    async def begin(_: Hosted) -> None:
        raise DatabaseUnreachable("the database has gone")

    monkeypatch.setattr(Hosted, "begin", begin)
    with closing(listen("127.0.0.1", 0)) as listening, pytest.raises(DatabaseUnreachable, match="has gone"):
        await service(database, relay=True).run(listening, wait=False, on_started=_never)


async def test_a_relay_with_nothing_to_deliver_to_is_refused(
    database: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R14: it would mark every event as delivered, to nobody."""
    monkeypatch.setattr("outbox_kernel.infrastructure.application.discover_handlers", lambda _: ())
    with pytest.raises(
        NothingToDeliverTo, match=r"^there is nothing .*: name the packages of the contexts in"
    ):
        outbox = Outbox(settings=attrs.evolve(database, rabbitmq_url=None), relay_settings=RelaySettings())
        await _run(outbox, wait=False, once=True)


def test_its_key_is_not_shown(database: Settings) -> None:
    assert KEY not in repr(attrs.evolve(service(database)))


async def begun(serving: asyncio.Task[None], started: asyncio.Event) -> None:
    """Wait until it serves, or say why it does not."""
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if serving.done():
        serving.result()


def _never(_app: object) -> None:
    raise AssertionError("it has started")
