"""O6, T3: what a queue brings clear is stored sealed, with keys of this database, and known when it comes again."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from outbox_kernel.errors import BadSetting, MasterKeyUnfit
from outbox_kernel.infrastructure.brokers.messages import message_of
from outbox_kernel.infrastructure.brokers.received import Received, read
from outbox_kernel.infrastructure.inbox.storing import StillMoving, Storage
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.outbox.logged_event import LoggedEvent
from outbox_kernel.infrastructure.outbox.sealing.keys import new_key
from outbox_kernel.infrastructure.outbox.sealing.reading import KeysInHand
from outbox_kernel.infrastructure.outbox.sealing.requiring import in_force
from outbox_kernel.infrastructure.outbox.sealing.writing import Sealing
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.infrastructure.relay.lease import Lease
from outbox_kernel.infrastructure.relay.log import Log
from outbox_kernel.kernel.serialization import serialize_event
from tests.relaying import Stage, handler
from tests.waiting import until
from tests.whispers import SECRET, PassedOn, Whispered, forgotten, keys_of, secrets_told, stored

QUEUE = "whispers"


def received(event: Any, **changes: Any) -> Received:
    """An event as a queue brings it."""
    payload = {**json.loads(serialize_event(event)), **changes}
    return Received(
        *(event.event_id, "whisper.told", 1, None, None, None, json.dumps(payload), "{}", event.occurred_at)
    )


async def store(stage: Stage, *events: Received, queue: str = QUEUE, **options: Any) -> dict[int, str]:
    return await Storage(queue, **options).store(stage.line(), events)


async def test_what_a_queue_brings_is_sealed_for_its_handlers(stage: Stage) -> None:
    found: list[Any] = []

    async def act(event: Whispered) -> None:
        found.append(event)

    told = [Whispered("one", uuid4()), Whispered("two", uuid4(), None), Whispered("three", uuid4(), "x" * 9)]
    assert await store(stage, *map(received, told)) == {}
    assert SECRET not in await stored(stage.engine)
    of_queue = handler("h", act, Whispered, queue=QUEUE, start="beginning")
    await OutboxRelay(stage.engine, stage.container, handlers=[of_queue], queues=[QUEUE]).run_until_idle()
    assert found == told


async def test_what_comes_twice_is_stored_once(stage: Stage) -> None:
    """T3: by the same queue or by another; under its id something else is nobody's event."""
    told = Whispered("one", uuid4())
    for queue in (QUEUE, QUEUE, "another"):
        assert await store(stage, received(told), queue=queue) == {}
    assert await secrets_told(stage.engine) == [SECRET]
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_arrivals") == 1
    for changed in ({"secret": "something else"}, {"what": "two"}):
        [reason] = (await store(stage, received(told, **changed))).values()
        assert reason.startswith("another event has its id")


async def test_what_comes_again_once_it_is_forgotten_is_known_all_the_same(stage: Stage) -> None:
    """What was sealed by another key nobody can compare; and nothing of it is stored."""
    told = Whispered("one", ada := uuid4())
    await store(stage, received(told))
    await forgotten(stage.engine, ada)
    assert await store(stage, received(told)) == {}
    assert await secrets_told(stage.engine) == [None]
    assert SECRET not in await stored(stage.engine)


async def test_what_was_stored_in_clear_before_its_class_said_otherwise_is_known_too(stage: Stage) -> None:
    told = Whispered("one", uuid4())
    await stage.witness.execute(
        "INSERT INTO outbox_events (event_id, event_type, event_version, payload, occurred_at, source) "
        "VALUES ($1, 'whisper.told', 1, $2::text::jsonb, $3, $4)",
        *(told.event_id, serialize_event(told), told.occurred_at, QUEUE),
    )
    assert await store(stage, received(told)) == {}
    assert await store(stage, received(told, what="two")) != {}


async def test_an_event_that_comes_back_to_where_it_was_published_is_the_same(stage: Stage) -> None:
    """T1, T3: through the message that a publisher makes of it."""
    told = PassedOn("one", uuid4(), "bo")
    async with stage.uow() as uow:
        uow.emit(told)
        await uow.commit()
    log = Log(stage.line(), Lease(), keys=KeysInHand(in_force(None)))
    rows = await log.line.fetch_as(
        LoggedEvent,
        "SELECT event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_key, aggregate_version, "
        "payload::text, headers::text, timestamptz_send(occurred_at) AS occurred_at, "
        "timestamptz_send(created_at) AS created_at FROM {outbox_events}",
    )
    await log.keys.give(rows, log)
    message = message_of(rows[0])
    assert SECRET in message.body.decode()
    assert await store(stage, read(message.message_id, message.headers, message.body)) == {}
    assert await stage.witness.fetchval("SELECT count(*) FROM outbox_arrivals") == 1
    [(key, _)] = await keys_of(stage.engine, told.who)
    assert isinstance(key, UUID)


async def test_what_is_of_no_class_known_here_is_stored_as_it_came(stage: Stage) -> None:
    """Nobody here could tell which of its fields are sensitive."""
    unknown = received(Whispered("one", uuid4()))._replace(event_type="whisper.unknown")
    assert await store(stage, unknown) == {}
    assert SECRET in await stored(stage.engine)


async def test_without_the_master_key_nothing_is_stored(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = received(Whispered("one", uuid4()))
    await store(stage, told)
    with pytest.raises(MasterKeyUnfit):
        await store(stage, told, master_keys=MasterKeys.parse(new_master_key("another")))
    monkeypatch.delenv("OUTBOX_MASTER_KEYS")
    with pytest.raises(BadSetting, match="OUTBOX_MASTER_KEYS is not set"):
        await store(stage, told)


async def test_a_key_that_another_is_making_is_waited_for(stage: Stage) -> None:
    told = Whispered("one", ada := uuid4())
    masters = in_force(None)
    assert masters is not None
    key = new_key(str(ada), masters)
    insert = "INSERT INTO outbox_subject_keys (id, subject, master_key, wrapped) VALUES ($1, $2, $3, $4)"
    async with stage.engine.connect() as another:
        await another.exec_driver_sql(insert, (key.id, key.subject, key.master_key, key.wrapped))
        storing = asyncio.create_task(store(stage, received(told)))
        await until(lambda: _somebody_waits(stage))
        await another.commit()
    assert await storing == {}
    assert await keys_of(stage.engine, ada) == [(key.id, False)]
    assert await secrets_told(stage.engine) == [SECRET]


async def _somebody_waits(stage: Stage) -> bool:
    return bool(
        await stage.witness.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    )


async def test_keys_that_come_and_go_at_each_look_are_for_another_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sealing, "take", lambda *_: None)
    with pytest.raises(StillMoving, match="keys of subjects of queue 'whispers' are being made by others"):
        await store(stage, received(Whispered("one", uuid4())))
