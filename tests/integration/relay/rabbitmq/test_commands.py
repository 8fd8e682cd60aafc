"""The commands that speak to RabbitMQ as they are typed: what they print, exit codes, a sentence for each mistake."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from aio_pika import DeliveryMode, Message, connect
from aio_pika.abc import AbstractChannel

from contexts.messaging.events import GroupMessageQueued
from contexts.messaging.handlers import LogGroupMessage
from outbox_kernel.infrastructure.cli import main
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.handlers import HandlerRegistration, registered_handlers
from tests import servers
from tests.brokers import Broker
from tests.integration.relay.rabbitmq.test_troubles import url_with
from tests.migrated import migrated_database
from tests.post import sweep_contexts

pytestmark = pytest.mark.brokers

CONTEXT, QUEUE, DEAD = "contexts.messaging", "group_message_processing", "messaging.dlq"
EVENT = {
    "event_id": "01890000-0000-7000-8000-000000000001",
    "occurred_at": "2026-01-02T03:04:05.678901+00:00",
    "event_type": "group_message.cancelled",
    "id": "01890000-0000-7000-8000-0000000000a1",
    "account_id": "01890000-0000-7000-8000-0000000000a2",
    "status": "cancelled",
    "previous_status": "queued",
}
Result = tuple[Any, str, str]
Typed = Callable[..., Result]


@pytest.fixture(scope="module")
def database(postgres_server: servers.Server) -> Iterator[str]:
    with migrated_database(postgres_server) as url:
        yield url


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """What serves sets up logging for its process, and this one is the tests'."""
    root, names = logging.getLogger(), ("alembic", "aio_pika", "aiormq")
    before = root.level, root.handlers[:], {name: logging.getLogger(name).level for name in names}
    yield
    root.handlers[:] = before[1]
    root.setLevel(before[0])
    for name, level in before[2].items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def environment(
    rabbitmq_broker: Broker, database: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.MonkeyPatch]:
    for name in [name for name in os.environ if name.startswith(("OUTBOX_", "RABBITMQ_"))]:
        # Other tests of this process have events with sealed fields, which no command starts without keys for.
        if name != "OUTBOX_MASTER_KEYS":
            monkeypatch.delenv(name)
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.setenv("RABBITMQ_URL", rabbitmq_broker.url)
    monkeypatch.setenv("OUTBOX_CONTEXTS", CONTEXT)
    yield monkeypatch
    asyncio.run(sweep_contexts(rabbitmq_broker.url))
    servers.run(emptied(database))


async def emptied(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "TRUNCATE outbox_events, outbox_arrivals, outbox_deliveries, outbox_receipts, outbox_subscriptions, "
        "outbox_cursors, outbox_cursors_past, outbox_progress"
    )
    await connection.close()


async def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


@pytest.fixture
def typed(environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    def run(*words: str) -> Result:
        with pytest.raises(SystemExit) as ended:
            main(words)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out + printed.err
        return ended.value.code, printed.out, printed.err

    return run


@pytest.fixture
def at_broker(rabbitmq_broker: Broker) -> Callable[[Callable[[AbstractChannel], Any]], None]:
    def do(work: Callable[[AbstractChannel], Any]) -> None:
        async def run() -> None:
            async with await connect(rabbitmq_broker.url) as connection, connection.channel() as channel:
                await work(channel)

        asyncio.run(run())

    return do


def sending(*bodies: bytes, to: str, **headers: Any) -> Callable[[AbstractChannel], Any]:
    async def work(channel: AbstractChannel) -> None:
        for number, body in enumerate(bodies, start=1):
            message = Message(
                body, headers=headers, message_id=f"m-{number}", delivery_mode=DeliveryMode.PERSISTENT
            )
            await channel.default_exchange.publish(message, to)

    return work


def sentence(result: Result, code: int = 1) -> str:
    """What a command says that has failed in one sentence."""
    assert (result[0], result[1]) == (code, "")
    assert result[2].startswith("error: ")
    assert result[2].count("\n") == 1, result[2]
    return result[2].removeprefix("error: ")


ASKING = [
    ["topology"],
    ["topology", "--apply"],
    ["dead-letters", "list"],
    ["dead-letters", "replay", "--all"],
    ["consume", QUEUE, "--once"],
]
KEPT_OUT = [
    ({"password": "s3cret"}, "does not let user 'guest' in: correct user or password in RABBITMQ_URL"),
    ({"path": "/nowhere", "password": "guest"}, "does not let user 'guest' into vhost 'nowhere'"),
    ({"host": "127.0.0.1", "port": "1", "password": "s3cret"}, "cannot be reached (Connection refused)"),
    ({"host": "nowhere.invalid", "password": "s3cret"}, "cannot be reached (Name or service not known)"),
]


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
@pytest.mark.parametrize(("changes", "said"), KEPT_OUT, ids=["password", "vhost", "port", "host"])
def test_a_broker_that_cannot_be_had_is_one_sentence_without_a_password(
    typed: Typed,
    environment: pytest.MonkeyPatch,
    rabbitmq_broker: Broker,
    words: list[str],
    changes: dict[str, str],
    said: str,
) -> None:
    """R14, O1: and the client's own complaints are not heard beside it."""
    environment.setenv("RABBITMQ_URL", url_with(rabbitmq_broker, **changes))
    code, out, err = typed(*words)
    if words[0] == "consume":
        # What serves tells it in its log before it gives up.
        *logged, err = err.splitlines(keepends=True)
        assert [json.loads(line)["logger"] for line in logged] == ["outbox.start", "outbox.consumer"]
        assert "s3cret" not in "".join(logged)
    assert said in sentence((code, out, err))
    assert "s3cret" not in out + err


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_without_a_broker_to_ask_it_is_asked_for(
    typed: Typed, environment: pytest.MonkeyPatch, words: list[str]
) -> None:
    """R15."""
    environment.delenv("RABBITMQ_URL")
    assert sentence(typed(*words)).startswith("RABBITMQ_URL is not set: write amqp://")
    code, out, err = typed(*words, "--json")
    assert (code, out, json.loads(err)["kind"]) == (1, "", "BadSetting")


@pytest.mark.parametrize(
    "words",
    [
        ["consume"],
        ["consume", "q" * 256],
        ["consume", ""],
        ["consume", "\udcff"],
        ["consume", QUEUE, "--prefetch", "0"],
        ["consume", QUEUE, "--prefetch", "65536"],
        ["dead-letters", "list", "--dead-letter-queue", "q" * 256],
        ["dead-letters", "list", "--id", ""],
        ["dead-letters", "list", "--limit", "0"],
        ["dead-letters", "replay"],
        ["dead-letters", "replay", "--all", "--queue", QUEUE],
        ["dead-letters", "replay", "--all", "--to", ""],
    ],
)
def test_what_cannot_be_meant_is_a_sentence_that_leads_to_the_help(typed: Typed, words: list[str]) -> None:
    """O1."""
    assert "--help`" in sentence(typed(*words), code=2)


# --- topology ------------------------------------------------------------------------------------------


def states(result: Result) -> dict[str, str]:
    return {line.split("\t")[1]: line.split("\t")[2] for line in result[1].splitlines()}


def test_topology_is_missing_then_made_then_there(typed: Typed) -> None:
    """T2: and only --apply makes anything."""
    for _ in range(2):
        looked = typed("topology", "--check")
        assert (looked[0], {*states(looked).values()}) == (1, {"missing"})
    made = typed("topology", "--apply")
    assert (made[0], {*states(made).values()}) == (0, {"made", "bound"})
    for words, bindings in (((), "unseen"), (("--apply",), "bound")):
        there = typed("topology", *words, "--json")
        assert (there[0], {each["state"] for each in json.loads(there[1])}) == (0, {"present", bindings})


def test_an_optional_queue_is_made_when_it_is_named(typed: Typed) -> None:
    """T2."""
    assert "messaging_audit" not in states(typed("topology"))
    assert states(typed("topology", "--apply", "--with", "messaging_audit"))["messaging_audit"] == "made"
    assert "no context declares a queue 'nothing': there is group_message_processing, " in sentence(
        typed("topology", "--with", "nothing")
    )


@pytest.mark.parametrize("words", [(), ("--apply",)])
def test_a_conflict_is_told_with_the_remedy_and_all_else_is_done(
    typed: Typed, at_broker: Any, words: tuple[str, ...]
) -> None:
    """T2: a queue in another form is left as it is."""

    async def declare_otherwise(channel: AbstractChannel) -> None:
        await channel.declare_queue(QUEUE, durable=True)

    at_broker(declare_otherwise)
    found = typed("topology", *words)
    [line] = [line for line in found[1].splitlines() if "conflict" in line]
    assert (found[0], found[2]) == (1, "")
    assert f"queue '{QUEUE}' exists with another x-" in line
    assert "delete it when nothing needs it as it is, or declare it here as it is there" in line
    assert states(found)["scheduled_message_processing"] == ("made" if words else "missing")
    sentence_of_consumer = typed("consume", QUEUE, "--once")[2].splitlines()[-1]
    assert sentence_of_consumer.startswith(f"error: queue '{QUEUE}' exists with another x-")


# --- doctor --------------------------------------------------------------------------------------------


def test_doctor_asks_the_broker_last_and_without_it_ends_as_it_would(
    typed: Typed, environment: pytest.MonkeyPatch, rabbitmq_broker: Broker
) -> None:
    """O1, R14: a warning alone is 0, and the client is not heard beside it."""
    typed("topology", "--apply")
    code, out, _ = typed("doctor", "--json")
    last = json.loads(out)["checks"][-3:]
    assert [(each["check"], each["state"]) for each in last] == [
        ("broker", "ok"),
        ("topology", "ok"),
        ("broker's dead letters", "ok"),
    ]
    environment.setenv(
        "RABBITMQ_URL", url_with(rabbitmq_broker, host="127.0.0.1", port="1", password="s3cret")
    )
    away = typed("doctor", "--json")
    assert (away[0], json.loads(away[1])["checks"][-1]["state"], away[2]) == (code, "warn", "")
    assert "s3cret" not in away[1]


# --- relay ---------------------------------------------------------------------------------------------


async def store_event(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        """
        INSERT INTO outbox_events (event_id, event_type, event_version, payload, occurred_at)
        VALUES ($1, 'group_message.cancelled', 1, $2, now())
        """,
        EVENT["event_id"],
        json.dumps({key: value for key, value in EVENT.items() if key != "event_type"}),
    )
    await connection.close()


def test_a_relay_that_runs_once_names_the_publisher_whose_broker_is_away(
    typed: Typed, environment: pytest.MonkeyPatch, rabbitmq_broker: Broker, database: str
) -> None:
    """R14, T4, O1: the event waits for the next relay, and a script that started this one knows."""
    # What other tests of this process have registered, no container here can make.
    environment.setattr(catalogue.definitions, "handlers", {})
    environment.setenv(
        "RABBITMQ_URL", url_with(rabbitmq_broker, host="127.0.0.1", port="1", password="s3cret")
    )
    # It is due for what commits from its first start on.
    typed("relay", "--once")
    servers.run(store_event(database))
    for _ in range(2):
        code, out, err = typed("relay", "--once", "--json")
        told = json.loads(err.splitlines()[-1])
        assert (code, told["kind"], json.loads(out)["delivered"]) == (1, "StandsStill", 0)
        assert told["error"].startswith(
            "'messaging' stands still, so what is for it waits: RabbitMQ at 127.0.0.1:1 cannot be reached"
        )
        assert "s3cret" not in err
    assert servers.run(rows(database, "SELECT status FROM outbox_status")) == [("pending",)]
    environment.setenv("RABBITMQ_URL", rabbitmq_broker.url)
    code, out, err = typed("relay", "--once", "--json")
    assert (code, json.loads(out)["delivered"], "paused" in err) == (0, 1, False)
    assert servers.run(rows(database, "SELECT status FROM outbox_status")) == [("delivered",)]


# --- dead letters --------------------------------------------------------------------------------------


def test_without_the_queue_of_the_dead_letters_its_maker_is_named(typed: Typed) -> None:
    """O1."""
    for words in (("list",), ("replay", "--all")):
        said = sentence(typed("dead-letters", *words))
        assert said.startswith(f"there is no queue '{DEAD}' at ")
        assert "`outbox topology --apply` makes it" in said


def test_where_nothing_is_dead_a_list_is_well_and_a_replay_is_not(typed: Typed) -> None:
    """O1."""
    typed("topology", "--apply")
    assert typed("dead-letters", "list") == (0, "", "there is no such dead letter\n")
    assert typed("dead-letters", "list", "--json") == (0, "[]\n", "")
    assert typed("dead-letters", "replay", "--all") == (1, "0 messages sent back\n", "")
    code, out, _ = typed("dead-letters", "replay", "--id", "m-1", "--json")
    assert (code, json.loads(out)) == (1, {"replayed": 0})


def test_many_dead_letters_are_shown_in_part_and_go_back_together(
    typed: Typed, at_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1: a bar shows how far it is, where somebody looks."""
    typed("topology", "--apply")
    at_broker(sending(*([b"\x00\xff"] * 120), to=DEAD, **{"x-outbox-queue": QUEUE}))
    code, out, err = typed("dead-letters", "list")
    assert (code, len(out.splitlines())) == (0, 100)
    assert err == "20 more not looked at: --limit shows them\n"
    assert len(json.loads(typed("dead-letters", "list", "--limit", "1000", "--json")[1])) == 120
    assert typed("dead-letters", "list", "--id", "m-120")[1].startswith(f"m-120\t{DEAD}\t{QUEUE}\t")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    code, out, _ = typed("dead-letters", "replay", "--queue", QUEUE)
    assert (code, out) == (0, "120 messages sent back\n")
    assert json.loads(typed("dead-letters", "list", "--json")[1]) == []


def test_what_strangers_wrote_commands_no_terminal(typed: Typed, at_broker: Any) -> None:
    """O1."""
    typed("topology", "--apply")
    at_broker(sending(b"", to=DEAD, **{"x-outbox-reason": "\x1b[2J\t\n", "x-outbox-queue": 7}))
    _, out, _ = typed("dead-letters", "list")
    assert "\x1b" not in out
    assert out.count("\n") == 1
    assert out.split("\t")[2] == "7"


def test_a_letter_that_cannot_go_back_is_named_with_the_remedy(typed: Typed, at_broker: Any) -> None:
    """O1: the others have gone."""
    typed("topology", "--apply")
    at_broker(sending(b"1", to=DEAD))
    at_broker(sending(b"2", to=DEAD, **{"x-outbox-queue": QUEUE}))
    said = sentence(typed("dead-letters", "replay", "--all"))
    assert said.startswith("1 sent back, 1 left where they are: message m-1 does not say which queue")
    assert json.loads(typed("dead-letters", "replay", "--all", "--to", QUEUE, "--json")[1]) == {"replayed": 1}


def test_no_letter_goes_to_a_queue_that_no_context_declares_unless_it_is_named(
    typed: Typed, at_broker: Any
) -> None:
    """O1, T3: an optional one of a context is declared."""
    typed("topology", "--apply", "--with", "messaging_audit")
    at_broker(sending(b"1", to=DEAD, **{"x-outbox-queue": "messaging_audit"}))
    at_broker(sending(b"2", to=DEAD, **{"x-outbox-queue": DEAD}))
    said = sentence(typed("dead-letters", "replay", "--all"))
    assert said == (
        f"1 sent back, 1 left where they are: message m-1 says that it came from queue '{DEAD}', which no context "
        "declares: name it with --to if it is right\n"
    )
    assert json.loads(typed("dead-letters", "replay", "--all", "--to", DEAD, "--json")[1]) == {"replayed": 1}


# --- consume -------------------------------------------------------------------------------------------


def logged(err: str, message: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    return [line for line in lines if message in line["message"]]


def test_once_it_handles_what_is_there_and_ends(typed: Typed, at_broker: Any, database: str) -> None:
    """T3: what is no event goes to the dead letters, binary or not."""
    typed("topology", "--apply")
    at_broker(sending(json.dumps(EVENT).encode(), b"\x00\xff binary", b"[]", to=QUEUE))
    code, out, err = typed("consume", QUEUE, QUEUE, "--once")
    assert (code, out) == (0, "")
    assert [each["queues"] for each in logged(err, "consumer starts")] == [QUEUE]
    assert logged(err, "consumer has stopped")
    assert len(logged(err, "goes to the dead letters")) == 2
    stored = "SELECT event_type, status, source FROM outbox_events JOIN outbox_status USING (event_id)"
    assert servers.run(rows(database, stored)) == [("group_message.cancelled", "delivered", QUEUE)]
    reasons = [each["reason"] for each in json.loads(typed("dead-letters", "list", "--json")[1])]
    assert ["JSON" in reason for reason in reasons] == [True, True]


@pytest.mark.parametrize("queues", [["messaging_audit"], [QUEUE, "messaging_audit"]])
def test_a_queue_that_no_handler_is_for_is_not_emptied(
    typed: Typed, at_broker: Any, database: str, queues: list[str]
) -> None:
    """T3, R14: its messages would count as delivered, and nobody would have handled them."""
    typed("topology", "--apply", "--with", "messaging_audit")
    at_broker(sending(json.dumps(EVENT).encode(), to="messaging_audit"))
    assert sentence(typed("consume", *queues, "--once")) == (
        "no handler is for queue 'messaging_audit' (contexts: contexts.messaging; queues with handlers: "
        f"{QUEUE}): correct the name, name the contexts that have one in OUTBOX_CONTEXTS, or say --store-unhandled to "
        "store what arrives, and nothing more\n"
    )
    assert servers.run(rows(database, "SELECT status FROM outbox_status")) == []


def test_told_to_store_what_no_handler_is_for_it_does_so_and_says_it(
    typed: Typed, at_broker: Any, database: str
) -> None:
    """T3."""
    typed("topology", "--apply", "--with", "messaging_audit")
    at_broker(sending(json.dumps(EVENT).encode(), to="messaging_audit"))
    code, _, err = typed("consume", "messaging_audit", "--once", "--store-unhandled")
    assert (code, len(logged(err, "no handler is for queue 'messaging_audit'"))) == (0, 1)
    assert servers.run(rows(database, "SELECT status FROM outbox_status")) == [("delivered",)]


def test_a_handler_that_was_for_another_queue_is_refused_with_what_to_do(
    typed: Typed, at_broker: Any, database: str
) -> None:
    """R2, R14: what that queue has brought would be lost to it; the queue is left as it is."""
    typed("topology", "--apply")
    typed("consume", QUEUE, "--once")
    servers.run(rows(database, "UPDATE outbox_subscriptions SET source = 'the former one' RETURNING name"))
    at_broker(sending(json.dumps(EVENT).encode(), to=QUEUE))
    code, out, err = typed("consume", QUEUE, "--once")
    told = err.splitlines()[-1]
    assert (code, out) == (1, "")
    assert f"is for queue {QUEUE!r}, and its subscription 'messaging.LogGroupMessage" in told
    assert "for queue 'the former one', which it would not get any more: give it a name of its own" in told
    assert servers.run(rows(database, "SELECT status FROM outbox_status")) == []


@pytest.mark.parametrize("words", [["consume", QUEUE, "--once"], ["relay", "--once"]])
def test_a_handler_for_a_queue_that_nobody_declares_is_told_of_and_is_no_error(
    typed: Typed, environment: pytest.MonkeyPatch, words: list[str]
) -> None:
    """T3: the queue may be another application's."""
    elsewhere = HandlerRegistration("shop.Count", LogGroupMessage, (GroupMessageQueued,), queue="elsewhere")
    known = {each.name: each for each in registered_handlers() if each.queue == QUEUE}
    environment.setattr(catalogue.definitions, "handlers", {**known, "shop.Count": elsewhere})
    code, _, err = typed(*words)
    [line] = logged(err, "which no context's topology declares")
    assert code == 0
    assert line["message"] == (
        "handler 'shop.Count' is for queue 'elsewhere', which no context's topology declares: correct the name or "
        "declare the queue, unless another application makes it"
    )


def test_a_handler_named_like_a_publisher_is_not_consumed_for(
    typed: Typed, environment: pytest.MonkeyPatch
) -> None:
    """R2, R14: in one database they would have one subscription."""
    taken = HandlerRegistration("messaging", LogGroupMessage, (GroupMessageQueued,), queue=QUEUE)
    environment.setattr(catalogue.definitions, "handlers", {"messaging": taken})
    assert sentence(typed("consume", QUEUE, "--once")).startswith(
        "handler 'messaging' and publisher 'messaging' both claim the name 'messaging', by which "
    )


@pytest.mark.parametrize("victim", [None, "outbox-relay", "outbox-consumer"])
def test_a_consumer_whose_tasks_a_handler_cancels_ends_with_an_error_so_that_it_is_started_again(
    typed: Typed,
    environment: pytest.MonkeyPatch,
    at_broker: Callable[[Callable[[AbstractChannel], Any]], None],
    victim: str | None,
) -> None:
    """R11, T3: all of them, or one that it is made of."""

    async def cancel(_self: LogGroupMessage, _event: Any) -> None:
        for task in asyncio.all_tasks():
            if victim in (None, task.get_name()):
                task.cancel()

    environment.setattr(LogGroupMessage, "handle", cancel)
    typed("topology", "--apply")
    body = {**EVENT, "event_type": "group_message.queued", "status": "queued", "previous_status": "draft"}
    at_broker(sending(json.dumps(body).encode(), to=QUEUE))
    code, _, err = typed("consume", QUEUE)
    assert code == 1
    assert "error: the consumer was cancelled by other code of this process" in err.splitlines()[-1]


def test_the_dead_letters_are_not_consumed(typed: Typed) -> None:
    """T3: what cannot be stored would go back to where it came from, without end."""
    assert sentence(typed("consume", "messaging.dlq", "--once")) == (
        "queue 'messaging.dlq' holds the dead letters, which nobody could store: `outbox dead-letters` lists them and "
        "sends them back\n"
    )


def test_a_queue_that_nobody_declares_is_named_with_the_remedy(typed: Typed, rabbitmq_broker: Broker) -> None:
    """T3: it may be a stranger's, so that it is looked for at the broker."""
    vhost = urlsplit(rabbitmq_broker.url).path[1:] or "/"
    last = typed("consume", "group_message", "--once", "--store-unhandled")[2].splitlines()[-1]
    assert last.startswith(f"error: there is no queue 'group_message' in vhost '{vhost}' at ")
    assert last.endswith(
        "no context declares it: correct the name, name its context in OUTBOX_CONTEXTS, or have its owner make it"
    )


def test_a_queue_that_somebody_has_for_himself_is_told_as_the_broker_tells_it(
    typed: Typed, rabbitmq_broker: Broker
) -> None:
    """O1."""

    async def meanwhile() -> Result:
        async with await connect(rabbitmq_broker.url) as connection, connection.channel() as channel:
            await channel.declare_queue("taken", exclusive=True)
            return await asyncio.to_thread(looking)

    def looking() -> Result:
        return typed("dead-letters", "list", "--dead-letter-queue", "taken")

    assert "RESOURCE_LOCKED" in sentence(asyncio.run(meanwhile()))


def test_a_database_that_is_not_there_or_not_migrated_is_one_sentence(
    typed: Typed, environment: pytest.MonkeyPatch, empty_postgres_url: str
) -> None:
    """R14: and nothing has been taken from the queue."""
    environment.setenv("DATABASE_URL", empty_postgres_url)
    assert "is not migrated" in sentence(typed("consume", QUEUE))
    environment.setenv("DATABASE_URL", "postgresql://nobody:s3cret@127.0.0.1:1/nothing")
    refused = sentence(typed("consume", QUEUE))
    assert "127.0.0.1" in refused
    assert "s3cret" not in refused
    environment.delenv("DATABASE_URL")
    assert sentence(typed("consume", QUEUE)).startswith("DATABASE_URL is not set")


class Signalling(logging.Handler):
    """Sends this process a signal when its log says so."""

    def __init__(self, message: str, number: signal.Signals) -> None:
        super().__init__()
        self.message, self.number = message, number

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(self.message):
            os.kill(os.getpid(), self.number)


@pytest.fixture
def signalled() -> Iterator[Callable[[str, signal.Signals], None]]:
    added: list[Signalling] = []

    def when(message: str, number: signal.Signals) -> None:
        added.append(Signalling(message, number))
        for name in ("outbox.start", "outbox.consumer"):
            logging.getLogger(name).addHandler(added[-1])

    yield when
    for each in added:
        for name in ("outbox.start", "outbox.consumer"):
            logging.getLogger(name).removeHandler(each)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well_and_nothing_is_lost(
    typed: Typed, at_broker: Any, database: str, signalled: Any, number: signal.Signals
) -> None:
    """R11, T4: what it has taken is stored, the rest is still in the queue."""
    typed("topology", "--apply")
    bodies = [
        json.dumps({**EVENT, "event_id": f"01890000-0000-7000-8000-{each:012}"}).encode()
        for each in range(50)
    ]
    at_broker(sending(*bodies, to=QUEUE))
    signalled("consuming", number)
    code, _, err = typed("consume", QUEUE)
    assert code == 0
    assert [each["signal"] for each in logged(err, "stopping")] == [number.name]
    assert logged(err, "consumer has stopped")
    left = json.loads(typed("dead-letters", "list", "--dead-letter-queue", QUEUE, "--json")[1])
    [(stored,)] = servers.run(rows(database, "SELECT count(*) FROM outbox_events"))
    assert stored + len(left) == len(bodies)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_while_it_waits_for_the_database_a_signal_ends_it_well(
    typed: Typed, environment: pytest.MonkeyPatch, signalled: Any, number: signal.Signals
) -> None:
    """R11, R14."""
    environment.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    signalled("waiting for the database", number)
    code, _, err = typed("consume", QUEUE, "--wait")
    assert code == 0
    assert logged(err, "stopped before it had begun")


def test_a_signal_between_two_messages_ends_even_once(typed: Typed, signalled: Any) -> None:
    """R11: told to stop, it does not go on until everything is handled."""
    signalled("consuming", signal.SIGTERM)
    code, _, err = typed("consume", QUEUE, "--once")
    assert (code, len(logged(err, "consumer has stopped"))) == (0, 1)
