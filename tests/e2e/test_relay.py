"""`outbox relay` as a process: it delivers, stops as it should, and says a mistake at its start at once (R11, R14)."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import asyncpg
import pytest

from tests import servers, stranger
from tests.brokers import Broker
from tests.commands import COMMAND, environment_with, failed_in_one_sentence, outbox
from tests.post import sweep_contexts

START_SECONDS_MAX = 10.0
TEST_SECONDS_MAX = 30.0

HANDLERS = """
import asyncio
import logging

from outbox_kernel.kernel import DomainEvent, Unavailable, event, handles

@event("shop.ordered")
class Ordered(DomainEvent):
    what: str

@handles(Ordered, name="shop.Pack")
class Pack:
    async def handle(self, event: Ordered) -> None:
        logging.getLogger("shop").info("packing", extra={"what": event.what})
        if event.what == "slow":
            await asyncio.Event().wait()
        if event.what == "away":
            raise Unavailable("payments")
"""

EMIT = """
import asyncio
import os
import sys

from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from shop.handlers import Ordered

async def main() -> None:
    engine = create_engine(os.environ["DATABASE_URL"])
    async with SqlAlchemyUnitOfWork(session_factory(engine)) as uow:
        uow.emit(Ordered(sys.argv[1]))
        await uow.commit()
    await engine.dispose()

asyncio.run(main())
"""


class Shop:
    """An application of one context in a folder of its own, with a database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.write("__init__.py", "")
        self.write("handlers.py", HANDLERS)

    def write(self, name: str, text: str) -> None:
        (self.folder / "shop").mkdir(exist_ok=True)
        (self.folder / "shop" / name).write_text(text)

    def settings(self, **settings: str) -> dict[str, str]:
        # Who emits here ends at once, often before he has said so: then the next poll finds it.
        ours = {"DATABASE_URL": self.url, "OUTBOX_CONTEXTS": "shop", "OUTBOX_POLL_INTERVAL": "0.1"}
        return {**ours, **settings}

    def outbox(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return outbox(*words, folder=self.folder, **self.settings(**settings))

    def start(self, *words: str, command: str = "relay", **settings: str) -> Relay:
        return Relay(
            subprocess.Popen(
                [*COMMAND, command, *words],
                cwd=self.folder,
                env=environment_with(**self.settings(**settings)),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def emit(self, what: str) -> None:
        done = outbox("-c", EMIT, what, folder=self.folder, **self.settings())
        assert done.returncode == 0, done.stderr

    def ask(self, query: str) -> Any:
        async def asked() -> Any:
            connection = await asyncpg.connect(self.url)
            try:
                return await connection.fetchval(query)
            finally:
                await connection.close()

        return servers.run(asked())


class Relay:
    """A relay at work, and what it logs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_for(self, message: str) -> dict[str, Any]:
        """Read the log until it says so."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(json.loads(line))
            if message in self.lines[-1]["message"]:
                return self.lines[-1]
        raise AssertionError(f"it never said {message!r}: {self.lines}")

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def code(self) -> int:
        return self.process.wait(TEST_SECONDS_MAX)


@pytest.fixture
def shop(tmp_path: Path, empty_postgres_url: str) -> Shop:
    made = Shop(tmp_path, empty_postgres_url)
    migrated = made.outbox("migrate")
    assert migrated.returncode == 0, migrated.stderr
    return made


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_event_of_another_process_is_delivered_and_a_signal_ends_the_relay_well(
    shop: Shop, number: signal.Signals
) -> None:
    with shop.start() as relay:
        started = relay.wait_for("relay starts")
        assert (started["logger"], started["concurrency"]) == ("outbox.start", 100)
        shop.emit("tea")
        assert relay.wait_for("packing")["what"] == "tea"
        relay.tell(number)
        assert relay.wait_for("stopping")["signal"] == number.name
        assert relay.code() == 0
    assert shop.ask("SELECT status FROM outbox_status") == "delivered"
    assert shop.ask("SELECT count(*) FROM outbox_relays") == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_ends_it_at_once(shop: Shop, number: signal.Signals, code: int) -> None:
    with shop.start() as relay:
        relay.wait_for("relay starts")
        shop.emit("slow")
        relay.wait_for("packing")
        relay.tell(number)
        relay.wait_for("stopping")
        relay.tell(number)
        relay.wait_for("stopped at once")
        assert relay.code() == code
    assert shop.ask("SELECT status FROM outbox_status") in ("pending", "open")


def test_a_handler_that_cancels_everything_ends_it_with_an_error_so_that_it_is_started_again(
    shop: Shop,
) -> None:
    all_of_it = "for task in asyncio.all_tasks(): task.cancel()"
    shop.write("handlers.py", HANDLERS.replace("await asyncio.Event().wait()", all_of_it))
    with shop.start("--json") as relay:
        relay.wait_for("relay starts")
        shop.emit("slow")
        relay.wait_for("packing")
        assert relay.process.stderr is not None
        *_, last = relay.process.stderr
        assert "was cancelled by other code of this process" in json.loads(last)["error"]
        assert relay.code() == 1
    assert shop.ask("SELECT count(*) FROM outbox_relays") == 0


def test_what_does_not_end_in_time_is_given_back(shop: Shop) -> None:
    with shop.start(OUTBOX_GRACE_SECONDS="0") as relay:
        relay.wait_for("relay starts")
        shop.emit("slow")
        relay.wait_for("packing")
        relay.tell(signal.SIGTERM)
        assert relay.code() == 0
    assert shop.ask("SELECT count(*) FROM outbox_deliveries WHERE attempts > 0 OR status = 'leased'") == 0
    assert shop.ask("SELECT count(lease_relay) FROM outbox_cursors") == 0


LINGERING = """

import threading

@handles(Ordered, name="shop.Watch", queue={queue!r})
class Watch:
    async def handle(self, event: Ordered) -> None:
        threading.Thread(target=threading.Event().wait, name="the shop's own").start()

@handles(Ordered, name="shop.wait", queue={queue!r})
def wait(event: Ordered) -> None:
    logging.getLogger("shop").info("waiting for ever")
    threading.Event().wait()
"""


@pytest.mark.parametrize("both", [True, False])
def test_threads_that_handlers_leave_behind_keep_no_relay_from_its_end(shop: Shop, both: bool) -> None:
    """R11: a function that never returns, and a thread that a handler has begun and nobody ends."""
    lingering = LINGERING.format(queue=None)
    shop.write(
        "handlers.py",
        HANDLERS + (lingering if both else lingering.replace("    threading.Event().wait()\n", "")),
    )
    with shop.start(OUTBOX_GRACE_SECONDS="0.5") as relay:
        relay.wait_for("relay starts")
        shop.emit("tea")
        relay.wait_for("waiting for ever")
        relay.tell(signal.SIGTERM)
        assert relay.code() == 0
        told = relay.wait_for("left behind")["message"]
        assert ("outbox-handler shop.wait" in told, "the shop's own" in told) == (both, not both)


@pytest.mark.brokers
def test_threads_that_handlers_leave_behind_keep_no_consumer_from_its_end(
    shop: Shop, rabbitmq_broker: Broker
) -> None:
    queue = f"shop-{uuid4().hex}"
    shop.write("handlers.py", HANDLERS + LINGERING.format(queue=queue))
    shop.write(
        "topology.py",
        f"from outbox_kernel import Queue\nQUEUES = (Queue({queue!r}, ('#',), exchange={queue!r}),)\n",
    )
    body = {
        "event_id": str(uuid4()),
        "occurred_at": "2026-01-02T03:04:05+00:00",
        "event_type": "shop.ordered",
        "what": "tea",
    }
    with shop.start(
        queue, command="consume", OUTBOX_GRACE_SECONDS="0.5", RABBITMQ_URL=rabbitmq_broker.url
    ) as consumer:
        consumer.wait_for("consuming")
        stranger.write(rabbitmq_broker.url, queue, json.dumps(body).encode())
        consumer.wait_for("waiting for ever")
        consumer.tell(signal.SIGTERM)
        assert consumer.code() == 0
        consumer.wait_for("left behind")
    servers.run(sweep_contexts(rabbitmq_broker.url))


def test_a_stopped_relays_transaction_is_ended_by_the_server(shop: Shop) -> None:
    with shop.start(OUTBOX_LEASE_SECONDS="3") as relay:
        relay.wait_for("relay starts")
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outbox-kernel relay'"
        assert shop.ask(query) > 0
    shop.write(
        "handlers.py",
        HANDLERS.replace("__init__", "")
        + "\n\nfrom sqlalchemy import text\nfrom sqlalchemy.ext.asyncio import AsyncSession\n"
        "@handles(Ordered, name='shop.Ask')\nclass Ask:\n"
        "    def __init__(self, session: AsyncSession) -> None:\n        self.session = session\n"
        "    async def handle(self, event: Ordered) -> None:\n"
        "        setting = 'SHOW idle_in_transaction_session_timeout'\n"
        "        logging.getLogger('shop').info('asked', extra={'what': await self.session.scalar(text(setting))})\n",
    )
    with shop.start(OUTBOX_LEASE_SECONDS="3") as relay:
        relay.wait_for("relay starts")
        shop.emit("tea")
        assert relay.wait_for("asked")["what"] == "3s"


def test_once_delivers_what_is_due_and_says_how_much(shop: Shop) -> None:
    shop.emit("tea")
    done = shop.outbox("relay", "--once", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["delivered"] == 1
    assert shop.ask("SELECT status FROM outbox_status") == "delivered"


def test_once_says_who_stands_still(shop: Shop) -> None:
    """R7, R14: what is for it waits for the next relay, and a script that started this one knows."""
    shop.emit("away")
    for _ in range(2):
        done = shop.outbox("relay", "--once", "--json")
        told = json.loads(done.stderr.splitlines()[-1])
        assert (done.returncode, told["kind"]) == (1, "StandsStill")
        assert told["error"] == "'shop.Pack' stands still, so what is for it waits: payments is unavailable"
    assert shop.ask("SELECT count(*) FROM outbox_deliveries") == 0


def test_waiting_it_starts_when_the_database_is_migrated(tmp_path: Path, empty_postgres_url: str) -> None:
    shop = Shop(tmp_path, empty_postgres_url)
    with shop.start("--wait") as relay:
        assert "is not migrated" in relay.wait_for("waiting for the database")["message"]
        assert shop.outbox("migrate").returncode == 0
        relay.wait_for("relay starts")
        relay.tell(signal.SIGTERM)
        assert relay.code() == 0


def test_while_it_waits_a_signal_ends_it_well(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "postgresql://nobody@127.0.0.1:1/nothing")
    with shop.start("--wait") as relay:
        relay.wait_for("waiting for the database")
        relay.tell(signal.SIGTERM)
        assert relay.code() == 0


def test_on_a_terminal_its_log_is_for_people(shop: Shop) -> None:
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "relay"],
        cwd=shop.folder,
        env=environment_with(**shop.settings()),
        stdout=its,
        stderr=its,
        stdin=subprocess.DEVNULL,
    )
    os.close(its)
    shown, until = "", time.monotonic() + TEST_SECONDS_MAX
    try:
        while "relay starts" not in shown:
            assert time.monotonic() < until, shown
            assert select.select([ours], [], [], TEST_SECONDS_MAX)[0]
            shown += os.read(ours, 4096).decode()
        assert "INFO      relay starts  action=relay.started  outbox_kernel=" in shown
        process.send_signal(signal.SIGTERM)
        assert process.wait(TEST_SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


# --- mistakes at the start -------------------------------------------------------------------------------


def refused(shop: Shop, **settings: str) -> str:
    began = time.monotonic()
    sentence = failed_in_one_sentence(shop.outbox("relay", **settings))
    assert time.monotonic() - began < START_SECONDS_MAX
    return sentence


def test_a_bad_setting(shop: Shop) -> None:
    assert refused(shop, OUTBOX_POLL_INTERVAL="soon").startswith(
        "OUTBOX_POLL_INTERVAL is 'soon': give a number"
    )
    assert refused(shop, OUTBOX_LOG_LEVEL="loud").startswith("OUTBOX_LOG_LEVEL is 'LOUD'")
    assert refused(shop, DATABASE_URL="").startswith("DATABASE_URL is not set")


def test_an_unreachable_database(shop: Shop) -> None:
    sentence = refused(shop, DATABASE_URL="postgresql://nobody@127.0.0.1:1/nothing")
    assert sentence.startswith("no PostgreSQL answers at 127.0.0.1:1")


def test_an_unmigrated_database(tmp_path: Path, empty_postgres_url: str) -> None:
    sentence = refused(Shop(tmp_path, empty_postgres_url))
    assert "is not migrated (outbox_0001" in sentence
    assert sentence.endswith("run `outbox migrate`")


def test_a_missing_upcaster(shop: Shop) -> None:
    shop.write("handlers.py", HANDLERS.replace('@event("shop.ordered")', '@event("shop.ordered", version=2)'))
    shop.write(
        "wiring.py", "from outbox_kernel.kernel import upcasts\n\n\ndef register(container):\n    pass\n"
    )
    sentence = refused(shop)
    assert "shop.ordered" in sentence
    assert "@upcasts" in sentence


def test_a_handler_that_the_container_cannot_build(shop: Shop) -> None:
    needy = HANDLERS.replace(
        "class Pack:\n", "class Pack:\n    def __init__(self, address: int | str) -> None: ...\n"
    )
    shop.write("handlers.py", needy)
    assert refused(shop).startswith("handler 'shop.Pack' cannot be made by the container")


def test_what_a_handler_lacks_is_named_however_deep_it_is(shop: Shop) -> None:
    """R14."""
    mailer = "class Mailer:\n    def __init__(self, host: str) -> None: ...\n\n\n"
    needy = HANDLERS.replace(
        "class Pack:\n", "class Pack:\n    def __init__(self, by: Mailer) -> None: ...\n"
    )
    shop.write("handlers.py", needy.replace("@handles", f"{mailer}@handles", 1))
    assert "cannot be made by the container (Pack needs Mailer needs str): register" in refused(shop)


def test_handlers_that_cannot_be_imported(shop: Shop) -> None:
    shop.write("handlers.py", "import nothing_of_that_name\n")
    assert "nothing_of_that_name" in refused(shop)


def test_a_context_that_is_not_there(shop: Shop) -> None:
    assert refused(shop, OUTBOX_CONTEXTS="absent").startswith("context 'absent' is not found")


def test_without_handlers_and_publishers_it_does_not_begin(shop: Shop) -> None:
    """R14: it would mark every event as delivered, to nobody."""
    shop.emit("tea")
    (shop.folder / "shop" / "empty").mkdir()
    shop.write("empty/__init__.py", "")
    for words in ([], ["--once"]):
        sentence = failed_in_one_sentence(shop.outbox("relay", *words, OUTBOX_CONTEXTS="shop.empty"))
        assert sentence.startswith("there is nothing to deliver events to, neither a handler nor")
        assert "(contexts: shop.empty): name the packages of the contexts in OUTBOX_CONTEXTS" in sentence
    assert shop.ask("SELECT count(*) FROM outbox_subscriptions") == 0


def test_where_each_handler_is_for_a_queue_a_relay_names_what_runs_them(shop: Shop) -> None:
    """R14, T3."""
    shop.write(
        "handlers.py",
        "from outbox_kernel import handles\n"
        "@handles('shop.*', name='shop.Pack', queue='parcels')\n"
        "def pack(event): ...\n",
    )
    sentence = failed_in_one_sentence(shop.outbox("relay", "--once"))
    assert sentence.endswith(
        "(contexts: shop): each handler is for a queue, so `outbox consume parcels` runs shop.Pack"
    )
