"""O6: handlers and publishers get what was sealed as it was, until its subject is forgotten; no error tells it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest

from outbox_kernel.errors import BadSetting, Reject, RetryAfter, Unavailable
from outbox_kernel.infrastructure.brokers import Message, Outcome, Publisher, Queue, Topology
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker, MemoryOutlet
from outbox_kernel.infrastructure.brokers.port import Refused
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.outbox.sql.subject_keys import FORGET
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.kernel import DomainEvent, RetrySchedule
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.relaying import FromBeginning, Stage, handler
from tests.serving import serving
from tests.waiting import until
from tests.whispers import SECRET, PassedOn, Whispered, forgotten

NOT_TOLD = "***"


async def tell(stage: Stage, *events: DomainEvent, of: UUID | None = None) -> None:
    async with stage.uow() as uow:
        for each in events:
            uow.emit(each, aggregate_type="bank.wallet" if of else None, aggregate_id=of)
        await uow.commit()


def collecting(found: list[Any], name: str = "h", **options: Any) -> HandlerRegistration:
    async def act(given: Any) -> None:
        found.extend(given if isinstance(given, list) else [given])

    return handler(name, act, *options.pop("events", (Whispered, PassedOn)), **options)


# --- handlers ---------------------------------------------------------------------------------------------


async def test_a_handler_gets_its_event_as_it_was(stage: Stage) -> None:
    found: list[Any] = []
    told = [Whispered("one", uuid4()), PassedOn("two", uuid4(), "bo"), Whispered("three", uuid4(), None)]
    await tell(stage, *told)
    await stage.drain(collecting(found))
    assert found == told
    assert [each.secret for each in found] == [SECRET, SECRET, None]


async def test_so_do_a_batch_and_a_handler_of_patterns(stage: Stage) -> None:
    """R16, K5: who knows no class gets a payload without anything of how it is stored."""
    together: list[Any] = []
    stored: list[Any] = []
    told = Whispered("one", uuid4())
    await tell(stage, told)
    any_whisper = attrs.evolve(collecting(stored, "any"), events=(), patterns=("whisper.*",))
    await stage.drain(collecting(together, "batch", batch=10), any_whisper)
    assert together == [told]
    [event] = stored
    assert event.payload == {
        "event_id": str(told.event_id),
        "occurred_at": told.occurred_at.isoformat(),
        "what": "one",
        "who": str(told.who),
        "secret": SECRET,
    }


async def test_a_delivery_is_opened_as_well(stage: Stage) -> None:
    """R7: what failed once comes again, with keys that are read anew."""
    tries: list[str | None] = []
    ada = uuid4()

    async def fail_once(event: Whispered) -> None:
        tries.append(event.secret)
        if len(tries) == 1:
            raise ValueError("not yet")

    await tell(stage, Whispered("one", ada))
    retrying = handler("h", fail_once, Whispered, retry=RetrySchedule((1,), dead_at=3))
    await stage.drain(retrying)
    await stage.drain(retrying, at=10)
    assert tries == [SECRET, SECRET]
    await tell(stage, Whispered("two", ada))
    tries.clear()
    await stage.drain(retrying, at=20)
    await forgotten(stage.engine, ada)
    await stage.drain(retrying, at=30)
    assert tries == [SECRET, None]


async def test_what_is_forgotten_reads_so_and_keeps_its_place_in_the_order(stage: Stage) -> None:
    """O6: rows, order and receipts stay."""
    found: list[Any] = []
    ada, wallet = uuid4(), uuid4()
    await tell(stage, Whispered("one", ada), PassedOn("two", ada, "bo"), Whispered("three", ada), of=wallet)
    await forgotten(stage.engine, ada)
    await tell(stage, Whispered("four", ada, "told later"), of=wallet)
    await forgotten(stage.engine, "bo")
    await stage.drain(collecting(found))
    assert [(each.what, each.secret) for each in found] == [
        ("one", None),
        ("two", ""),
        ("three", None),
        ("four", "told later"),
    ]
    assert found[1].address == "nowhere"
    assert [each.who for each in found] == [ada] * 4


async def test_each_handler_reads_what_holds_when_it_runs(stage: Stage) -> None:
    """An event that cannot change is otherwise the same object for all handlers."""
    first: list[Any] = []
    second: list[Any] = []
    go, ada = asyncio.Event(), uuid4()

    async def wait(event: Whispered) -> None:
        if event.what == "gate":
            first.append(event)
            await go.wait()
        else:
            second.append(event)

    relay = stage.relay(
        collecting(first, "quick", events=(Whispered,)),
        handler("slow", wait, Whispered, timeout_seconds=60),
        at=None,
        poll_interval_seconds=60.0,
    )
    wallet = uuid4()
    async with serving(relay):
        await tell(stage, Whispered("gate", uuid4()), Whispered("behind", ada), of=wallet)
        relay.look()
        await until(lambda: _has(first, 3))
        await forgotten(stage.engine, ada)
        await until(lambda: _knows_of_it(relay))
        go.set()
        await until(lambda: _has(second, 1))
    assert [each.secret for each in first if each.what == "behind"] == [SECRET]
    assert [each.secret for each in second] == [None]


async def test_a_relay_that_is_not_told_finds_out_by_itself(stage: Stage) -> None:
    """As where its listener is deaf: it looks at the keys of what it has in hand a few times in a lease."""
    found: list[Any] = []
    go, ada, wallet = asyncio.Event(), uuid4(), uuid4()

    async def wait(event: Whispered) -> None:
        found.append(event.secret)
        await go.wait()

    relay = stage.relay(
        handler("h", wait, Whispered, timeout_seconds=60),
        at=None,
        lease_seconds=0.9,
        poll_interval_seconds=60.0,
    )
    async with serving(relay):
        await tell(stage, Whispered("one", uuid4(), "gate"), Whispered("two", ada), of=wallet)
        relay.look()
        await until(lambda: _has(found, 1))
        text, _ = FORGET.in_schema(None)
        await stage.witness.fetch(text, None, str(ada))
        await until(lambda: _knows_of_it(relay))
        go.set()
        await until(lambda: _has(found, 2))
    assert found == ["gate", None]


async def _has(found: list[Any], count: int) -> bool:
    return len(found) >= count


async def _knows_of_it(relay: OutboxRelay) -> bool:
    shift = relay._shift  # noqa: SLF001 - nobody else can say
    keys = shift.ownership.log.keys._known.values() if shift else ()  # noqa: SLF001 - as above
    return any(key.is_forgotten for key in keys)


# --- master keys ------------------------------------------------------------------------------------------


async def test_without_a_master_key_a_relay_does_not_start(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R14."""
    monkeypatch.delenv("OUTBOX_MASTER_KEYS")
    with pytest.raises(BadSetting, match=r"OUTBOX_MASTER_KEYS is not set, and event .* encrypted"):
        await stage.drain(collecting([]))


async def test_a_master_key_that_is_not_at_hand_is_nobodys_failure(stage: Stage) -> None:
    """R7: the handler stands still and says why; one that has the key goes on from there."""
    found: list[Any] = []
    await tell(stage, Whispered("one", uuid4()))
    stranger = OutboxRelay(
        stage.engine,
        stage.container,
        handlers=[collecting(found, start="beginning")],
        master_keys=MasterKeys.parse(new_master_key("another")),
    )
    await stranger.run_until_idle()
    assert found == []
    assert stranger.paused == {
        "h": "master key 'of-the-tests' is unavailable: sealed fields need master key 'of-the-tests', which is not in "
        "OUTBOX_MASTER_KEYS: add it behind the active one"
    }
    assert await stage.deliveries() == {}
    await stage.drain(collecting(found))
    assert [each.secret for each in found] == [SECRET]


# --- what was tampered with -------------------------------------------------------------------------------

SWAP = """
UPDATE outbox_events AS event SET payload = jsonb_set(payload, '{$sealed,secret,text}', (
  SELECT payload->'$sealed'->'secret'->'text' FROM outbox_events WHERE payload->>'what' = $2))
WHERE payload->>'what' = $1
"""


@pytest.mark.parametrize("harm", ["swapped", "key deleted", "no key's id"])
async def test_what_was_tampered_with_is_that_events_failure_alone(stage: Stage, harm: str) -> None:
    """R9."""
    found: list[Any] = []
    ada = uuid4()
    await tell(stage, Whispered("one", ada), Whispered("two", uuid4()), Whispered("three", uuid4()))
    if harm == "swapped":
        await stage.witness.execute(SWAP, "one", "two")
    elif harm == "key deleted":
        await stage.witness.execute("DELETE FROM outbox_subject_keys WHERE subject = $1", str(ada))
    else:
        await stage.witness.execute(
            "UPDATE outbox_events SET payload = jsonb_set(payload, '{$sealed,secret,key}', '\"no id\"') "
            "WHERE payload->>'what' = 'one'"
        )
    await stage.drain(collecting(found, retry=RetrySchedule((1,), dead_at=1)))
    assert [each.what for each in found] == ["two", "three"]
    assert await stage.deliveries() == {("one", "h"): "dead"}
    error = await stage.witness.fetchval("SELECT error_message FROM outbox_deliveries")
    assert error.startswith("FieldNotOpened: field 'secret' of event whisper.told")


# --- publishers -------------------------------------------------------------------------------------------


class Notes:
    """A broker and a publisher of whispers."""

    def __init__(self, **options: Any) -> None:
        self.broker = MemoryBroker()
        self.topology = Topology.of(
            [Publisher("notes", ("whisper.*",), **options)],
            [Queue("notes", ("whisper.#",))],
            exchange="notes",
        )

    def relay(self, stage: Stage, outlet: type[MemoryOutlet] = MemoryOutlet, **options: Any) -> OutboxRelay:
        [publisher] = self.topology.publishers
        relay = FromBeginning(
            *(stage.engine, stage.container),
            handlers=[],
            publishers={publisher: outlet(self.broker, publisher, self.topology)},
            **options,
        )
        stage.relays.append(relay)
        return relay

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(each.body) for each in self.broker.queues["notes"]]


async def test_a_publisher_sends_what_handlers_get(stage: Stage) -> None:
    """T1: nothing of how it is stored is in the message."""
    notes, ada = Notes(), uuid4()
    await tell(stage, PassedOn("one", ada, "bo"), PassedOn("two", ada, "cleo"))
    await forgotten(stage.engine, "cleo")
    await notes.relay(stage).run_until_idle()
    assert [(each["what"], each["secret"], each["address"]) for each in notes.bodies] == [
        ("one", SECRET, "12 Byron Row"),
        ("two", SECRET, "nowhere"),
    ]
    assert all("$sealed" not in each for each in notes.bodies)


@pytest.mark.parametrize(("sensitive", "left"), [("mask", {"secret": "***", "address": "***"}), ("omit", {})])
async def test_a_publisher_may_keep_to_itself_what_is_sensitive(
    stage: Stage, sensitive: Any, left: Any
) -> None:
    notes = Notes(sensitive=sensitive)
    await tell(stage, PassedOn("one", uuid4(), "bo"))
    await notes.relay(stage).run_until_idle()
    [body] = notes.bodies
    assert {name: body[name] for name in ("secret", "address") if name in body} == left
    assert (body["what"], body["whom"]) == ("one", "bo")


async def test_it_sends_nothing_of_an_event_whose_class_it_does_not_know(stage: Stage) -> None:
    """Nobody here could tell which of its fields are sensitive; what is sent is sent."""
    notes = Notes(sensitive="mask")
    await stage.put("one", event_type="whisper.unknown")
    await notes.relay(stage).run_until_idle()
    assert notes.bodies == []
    error = await stage.witness.fetchval("SELECT error_message FROM outbox_deliveries")
    assert "sensitive='mask', and no class here says what is sensitive in it" in error


async def test_a_publisher_without_the_master_key_stands_still(stage: Stage) -> None:
    """R7: nothing is charged, and whoever has the key goes on."""
    notes = Notes()
    await tell(stage, Whispered("one", uuid4()))
    stranger = notes.relay(stage, master_keys=MasterKeys.parse(new_master_key("another")))
    await stranger.run_until_idle()
    assert notes.bodies == []
    assert "master key 'of-the-tests' is unavailable" in stranger.paused["notes"]
    assert await stage.deliveries() == {}
    await notes.relay(stage).run_until_idle()
    assert [each["secret"] for each in notes.bodies] == [SECRET]


async def test_what_an_outlet_says_of_a_message_is_told_without_it(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    class Quoting(MemoryOutlet):
        async def publish(self, message: Message) -> Outcome:
            body = message.body.decode()
            if json.loads(body)["what"] == "refused":
                return Refused(f"no such message: {body}")
            raise ValueError(f"cannot send {body}")

    notes = Notes()
    await tell(stage, Whispered("refused", uuid4()), Whispered("failed", uuid4()))
    await notes.relay(stage, Quoting).run_until_idle()
    errors = [row[0] for row in await stage.witness.fetch("SELECT error_message FROM outbox_deliveries")]
    assert len(errors) == 2
    for text in (*errors, caplog.text):
        assert NOT_TOLD in text
        assert SECRET not in text


# --- errors -----------------------------------------------------------------------------------------------


async def _everything(stage: Stage) -> str:
    """What the relay's tables hold as text."""
    tables = ("outbox_events", "outbox_deliveries", "outbox_relays", "outbox_subject_keys")
    rows = [
        row[0]
        for table in tables
        for row in await stage.witness.fetch(f"SELECT row::text FROM {table} AS row")
    ]
    return "\n".join(rows)


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    with caplog.at_level(logging.DEBUG):
        yield lambda: caplog.text


@pytest.mark.parametrize(
    "fail",
    [
        lambda secret: ValueError(f"no such place: {secret!r}"),
        lambda secret: Reject(f"no such place: {secret}"),
        lambda secret: RetryAfter(60, f"no such place: {secret}"),
        lambda secret: Unavailable(secret, f"no such place: {secret}"),
        lambda secret: KeyError(secret.upper()),
        lambda secret: ExceptionGroup(secret, [ValueError(secret)]),
    ],
    ids=["error", "reject", "retry after", "unavailable", "upper case", "group"],
)
@pytest.mark.parametrize("batch", [None, 10])
async def test_what_a_handler_fails_with_is_stored_and_logged_without_it(
    stage: Stage, logs: Callable[[], str], fail: Callable[[str], BaseException], batch: int | None
) -> None:
    async def act(event: Any) -> None:
        raise fail((event[0] if batch else event).secret) from LookupError(SECRET)

    await tell(stage, Whispered("one", uuid4()), Whispered("two", uuid4()))
    relay = stage.relay(handler("h", act, Whispered, batch=batch))
    await relay.run_until_idle()
    for text in (await _everything(stage), logs(), str(relay.paused)):
        assert SECRET not in text.lower()
    assert NOT_TOLD in await _everything(stage) + str(relay.paused)


async def test_a_failure_after_the_commit_and_the_end_of_a_thread_tell_nothing(
    stage: Stage, logs: Callable[[], str]
) -> None:
    """R6, R8."""
    import threading

    go = threading.Event()

    def stay(event: Whispered) -> None:
        go.wait(30)
        raise ValueError(event.secret)

    async def commit_and_fail(event: Whispered) -> None:
        await stage.enter("done")
        raise ValueError(event.secret)

    await tell(stage, Whispered("one", uuid4()))
    in_thread = HandlerRegistration("thread", stay, (Whispered,), timeout_seconds=0.2)
    relay = stage.relay(in_thread, handler("late", commit_and_fail, Whispered), at=None)
    async with serving(relay):
        await until(lambda: _says(logs, "no end after 0.2 s"))
        go.set()
        await until(lambda: _says(logs, "ended after its run had been given up"))
        await until(lambda: _says(logs, "after its effect had committed"))
    assert SECRET not in logs()
    assert SECRET not in await _everything(stage)


async def _says(logs: Callable[[], str], what: str) -> bool:
    return what in logs()


async def test_an_event_without_sealed_fields_is_told_of_as_ever(
    stage: Stage, logs: Callable[[], str]
) -> None:
    async def act(event: Whispered) -> None:
        raise ValueError(f"{event.what} {event.secret}")

    await tell(stage, Whispered("one", uuid4(), None))
    await stage.drain(handler("h", act, Whispered))
    assert "ValueError: one None" in await _everything(stage)
    assert "ValueError: one None" in logs()
