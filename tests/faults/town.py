"""The other machine: a vhost between two databases, consumers there, and ways to see how far they are."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
from aio_pika import DeliveryMode, Message, connect
from aio_pika.abc import AbstractChannel
from attrs import Factory, define

from outbox_kernel.infrastructure.brokers import Publisher, Queue, Topology
from outbox_kernel.infrastructure.outbox.sql.fragments import is_passed, shard
from tests.brokers import MESSAGE_BYTES_MAX, OwnBroker
from tests.faults.clock import TooLate, until
from tests.faults.judge import INVERSIONS, REFUSED, REPEATED, STUCK, Judgement
from tests.faults.rig import TROUBLE, Rig
from tests.proxy import Proxy

QUEUE, PUBLISHER, CONSUMED = "faults.counts", "faults.publisher", "faults.consumed"
USER, PASSWORD = "faults", "faults"
RESUMED_SECONDS_MAX = 10.0
HANDLERS_SECONDS_MAX = 10.0
# The deadline of a confirm, and a little.
MISSED_SECONDS_MAX = 15.0
PUT = """
INSERT INTO outbox_events (event_id, event_type, event_version, payload, occurred_at)
VALUES ($1, $2, 1, $3::text::jsonb, clock_timestamp())
"""
PAUSED = "SELECT count(*) FROM outbox_relays WHERE pauses <> '{}'"
# What the publisher has passed, and what does not wait for the broker as a delivery.
PUBLISHED = f"""
SELECT (SELECT count(*) FROM outbox_events AS event JOIN outbox_cursor_places AS place
          ON place.subscription = '{PUBLISHER}' AND place.shard = {shard("event")} WHERE {is_passed("event", "place")})
     - (SELECT count(*) FROM outbox_deliveries WHERE handler = '{PUBLISHER}' AND status IN ('waiting', 'leased'))
"""
EFFECTS = "SELECT count(*) FROM faults_effects"


def topology() -> Topology:
    """What all processes of a cell declare."""
    length = os.environ.get("FAULTS_QUEUE_LENGTH")
    arguments: dict[str, Any] = (
        {"x-max-length": int(length), "x-overflow": "reject-publish"} if length else {}
    )
    return Topology.of(
        [Publisher(PUBLISHER, ("faults.*",))],
        [Queue(QUEUE, ("faults.counted", "faults.large"), arguments=arguments)],
        exchange="faults",
        dead_letter_exchange="faults.dlx",
        dead_letter_queue="faults.dlq",
    )


@define(eq=False)
class Town:
    """A second database with consumers, reached through a broker alone."""

    rig: Rig
    broker: OwnBroker
    vhost: str
    database: str
    proxy: Proxy
    settings: dict[str, str] = Factory(dict)
    queue_arguments: Mapping[str, str] = Factory(dict)

    @classmethod
    async def on(cls, rig: Rig, broker: OwnBroker) -> Town:
        """Make vhost, user and database."""
        town = cls(
            rig, broker, f"faults-{uuid4().hex[:8]}", f"{rig.database}_there", Proxy("127.0.0.1", broker.port)
        )
        await town.proxy.open()
        await town.control("add_vhost", town.vhost)
        await town.let_in()
        connection = await asyncpg.connect(rig.server.url)
        try:
            await connection.execute(f"CREATE DATABASE {town.database} TEMPLATE faults_template")
        finally:
            await connection.close()
        return town

    async def leave(self) -> None:
        """Take it all away."""
        await self.proxy.close()
        connection = await asyncpg.connect(self.rig.server.url)
        try:
            await connection.execute(f"DROP DATABASE {self.database} WITH (FORCE)")
        finally:
            await connection.close()
        await self.control("delete_vhost", self.vhost)
        await self.control("delete_user", USER)

    async def control(self, *words: str) -> str:
        """Do what `rabbitmqctl` does."""
        return await asyncio.to_thread(self.broker.control, *words)

    async def let_in(self) -> None:
        """Give the processes' user its rights."""
        await self.control("add_user", USER, PASSWORD)
        await self.control("set_permissions", "-p", self.vhost, USER, ".*", ".*", ".*")

    @property
    def environment(self) -> dict[str, str]:
        """What relays and consumers are told of the broker, which they reach through the proxy."""
        return {
            "RABBITMQ_URL": f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.proxy.here}/{self.vhost}",
            **self.settings,
        }

    async def start(self, consumers: Mapping[str, str] | None = None) -> None:
        """Start relays here, and consumers there."""
        await self.rig.start_relays(self.environment)
        for _ in range(2):
            await self.rig.start_relay(
                {**self.environment, "DATABASE_URL": self.url, "FAULTS_CONSUME": "1", **(consumers or {})},
                at=self.url,
            )

    @property
    def url(self) -> str:
        """The database there."""
        return self.rig.server.url_of(self.database)

    # --- asking -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection to the database there."""
        connection = await asyncpg.connect(self.url, timeout=5)
        try:
            yield connection
        finally:
            connection.terminate()

    async def number(self, query: str, *arguments: Any) -> int | None:
        """Ask for a count there; None while nobody answers."""
        try:
            async with self.connection() as connection:
                return int(await connection.fetchval(query, *arguments))
        except TROUBLE:
            return None

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[AbstractChannel]:
        """A channel of the rig's own, past the proxy."""
        address = urlsplit(self.broker.url)._replace(path=f"/{self.vhost}").geturl()
        await self.control("set_permissions", "-p", self.vhost, "guest", ".*", ".*", ".*")
        async with await connect(address) as connection, connection.channel() as channel:
            yield channel

    # --- doing --------------------------------------------------------------------------------------

    async def put(self, event_type: str, note: str = "") -> None:
        """Commit an event that no broker takes."""
        payload = json.dumps({"event_id": str(uuid4()), "spell": REFUSED, "note": note})
        await self.rig.value(PUT, uuid4(), event_type, payload)

    async def put_large(self) -> None:
        """Commit an event whose message is over the broker's limit, though not over the outbox's."""
        await self.put("faults.large", "x" * (MESSAGE_BYTES_MAX + 1))

    async def send(self, body: bytes) -> None:
        """Put a message into the queue that is none of ours."""
        async with self.channel() as channel:
            await channel.default_exchange.publish(
                Message(body, delivery_mode=DeliveryMode.PERSISTENT), QUEUE
            )

    async def is_missed(self) -> None:
        """Wait until a relay has noticed that the broker is away; once all is written, none may."""

        async def paused() -> bool:
            return bool(await self.rig.number(PAUSED)) or not self.rig.fleet.writing

        try:
            await until(paused, "a relay notices that its broker is away", seconds=MISSED_SECONDS_MAX)
        except TooLate as error:
            self.rig.remarks.append(str(error))

    async def is_made_again(self, exchange: str) -> None:
        """Wait until a relay has made it again, standing still or not; once all is written, none does."""

        async def there() -> bool:
            found = await self.control("list_exchanges", "-p", self.vhost, "--no-table-headers", "name")
            return exchange in found.split() or not self.rig.fleet.writing

        try:
            await until(there, f"{exchange} is there again", seconds=MISSED_SECONDS_MAX)
        except TooLate as error:
            self.rig.remarks.append(str(error))

    async def is_emptied(self) -> None:
        """Wait until the consumers have acknowledged all that lies in the queue."""

        async def empty() -> bool:
            found = await self.control("list_queues", "-p", self.vhost, "--no-table-headers", "messages")
            return not any(int(each) for each in found.split())

        await until(empty, "the queue is empty", seconds=self.rig.scale.settle_seconds)

    async def handlers_go_on(self) -> None:
        """See that handlers here do as much as ever while the broker is away."""
        before, left = await self.rig.number(EFFECTS) or 0, 20

        async def more() -> bool:
            done = (await self.rig.number(EFFECTS) or 0) >= before + left
            return done or not self.rig.fleet.writing

        try:
            await until(more, "handlers here go on without the broker", seconds=HANDLERS_SECONDS_MAX)
        except TooLate as error:
            self.rig.remarks.append(str(error))

    async def resumes(self) -> None:
        """See that publishing goes on soon after the broker is back: no pause is left, and more is published."""
        before = await self.rig.number(PUBLISHED) or 0

        async def resumed() -> bool:
            more = (await self.rig.number(PUBLISHED) or 0) > before or not self.rig.fleet.writing
            return more and await self.rig.number(PAUSED) == 0

        try:
            took = await until(resumed, "publishing goes on", seconds=RESUMED_SECONDS_MAX)
        except TooLate as error:
            self.rig.remarks.append(str(error))
            took = RESUMED_SECONDS_MAX
        self.rig.moved_seconds = max(self.rig.moved_seconds, took)

    # --- the end ------------------------------------------------------------------------------------

    async def arrived(self) -> None:
        """Wait until everything that was committed here has been handled there."""

        async def all_there() -> bool:
            expected = await self.rig.number(
                "SELECT count(*) FROM outbox_events WHERE event_type = 'faults.counted'"
            )
            done = await self.number("SELECT count(DISTINCT event_id) FROM faults_effects")
            return done is not None and done == expected and await self.number(STUCK) == 0

        try:
            await until(
                all_there, "all is handled there", seconds=self.rig.scale.settle_seconds, beat_seconds=0.2
            )
        except TooLate as error:
            self.rig.remarks.append(str(error))

    async def judge(self, result: Judgement) -> None:
        """Compare what was committed here with what was done there."""
        async with self.rig.connection() as connection:
            committed = {
                row["event_id"]
                for row in await connection.fetch(
                    "SELECT event_id FROM outbox_events WHERE event_type = 'faults.counted'"
                )
            }
        async with self.connection() as connection:
            done = {row["event_id"] for row in await connection.fetch("SELECT event_id FROM faults_effects")}
            result.effects += await connection.fetchval(EFFECTS)
            result.stuck += await connection.fetchval(STUCK)
            result.repeated += int(await connection.fetchval(REPEATED, CONSUMED))
            result.inversions += await connection.fetchval(INVERSIONS, CONSUMED)
        result.lost += len(committed ^ done)
        if committed ^ done:
            result.remarks.append(
                f"{len(committed - done)} not handled there, {len(done - committed)} unheard of"
            )
