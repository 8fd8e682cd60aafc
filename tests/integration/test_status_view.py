"""What became of an event, as the views of the log tell it from rows that are put there by hand (S)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from attrs import define

from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox.migrator import migrate
from outbox_kernel.infrastructure.outbox.relay_tables import LOG_TABLES, RELAY_TABLES
from outbox_kernel.infrastructure.outbox.sql.fragments import SHARDS
from outbox_kernel.infrastructure.settings import Settings
from tests import servers

START = datetime(2026, 1, 2, tzinfo=UTC)
TABLES = ", ".join(("outbox_events", *(table.name for table in (*RELAY_TABLES, *LOG_TABLES))))
READER, OTHER, FORMER = (UUID(int=number) for number in (1, 2, 3))
# Its last byte is 7, and so is its shard.
AGGREGATE = UUID(int=7)
EVERYTHING = "100:100:"


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


@define
class Log:
    """Writes rows of the log; positions are as the server gives them, 1 and on."""

    connection: asyncpg.Connection

    async def execute(self, statement: str, *arguments: Any) -> None:
        await self.connection.execute(statement, *arguments)

    async def event(
        self,
        event_type: str = "bank.paid",
        *,
        xid: int = 50,
        aggregate: UUID | None = AGGREGATE,
        source: str | None = None,
        written: float = 0,
    ) -> UUID:
        event_id = uuid4() if aggregate else UUID(int=uuid4().int & ~0xFF | AGGREGATE.int)
        await self.execute(
            """INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, payload,
                 occurred_at, created_at, source, xid)
               VALUES ($1, $2, 1, CASE WHEN $3::uuid IS NOT NULL THEN 'bank.wallet' END, $3, '{}', $4, $4, $5, $6)""",
            *(event_id, event_type, aggregate, at(written), source, xid),
        )
        return event_id

    async def subscription(
        self, name: str = "h", *patterns: str, source: str | None = None, retired: bool = False
    ) -> None:
        await self.execute(
            """INSERT INTO outbox_subscriptions (name, kind, patterns, source, retired_at)
               VALUES ($1, 'handler', $2, $3, CASE WHEN $4 THEN now() END)""",
            *(name, list(patterns or ("bank.*",)), source, retired),
        )

    async def cursors(self, name: str = "h", reader: UUID = READER, first: int = 0) -> None:
        """Let all of its cursors go with one reader."""
        await self.execute(
            """INSERT INTO outbox_cursors (subscription, shard, reader, first_number)
               SELECT $1, shard, $2, $3 FROM generate_series(0, $4 - 1) AS shard""",
            *(name, reader, first, SHARDS),
        )

    async def past(self, reader: UUID, first: int, last: int, until: float, name: str = "h") -> None:
        await self.execute(
            """INSERT INTO outbox_cursors_past (subscription, shard, reader, first_number, last_number, until)
               SELECT $1, shard, $2, $3, $4, $5 FROM generate_series(0, $6 - 1) AS shard""",
            *(name, reader, first, last, at(until), SHARDS),
        )

    async def progress(
        self,
        number: int,
        position: int,
        *,
        snapshot: str = EVERYTHING,
        reader: UUID = READER,
        server: int = 1,
    ) -> None:
        """Write down a place, `number` seconds after the start; the one before, too, in each second since that."""
        await self.execute(
            """INSERT INTO outbox_progress (reader, number, position, recorded_at, server, snapshot)
               SELECT reader, still, position, $3::timestamptz + still * interval '1 second', server, snapshot
               FROM (SELECT * FROM outbox_progress WHERE reader = $1 ORDER BY number DESC LIMIT 1) AS last,
                    generate_series(last.number + 1, $2 - 1) AS still""",
            *(reader, number, START),
        )
        await self.execute(
            """INSERT INTO outbox_progress (reader, number, position, recorded_at, server, snapshot)
               VALUES ($1, $2, $3, $4, $5, $6::text::pg_snapshot)""",
            *(reader, number, position, at(number), server, snapshot),
        )

    async def delivery(
        self,
        event_id: UUID,
        status: str,
        *,
        changed: float = 0,
        attempts: int = 0,
        error: str | None = None,
        handler: str = "h",
        on_dead: str = "park",
    ) -> None:
        await self.execute(
            """INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status, attempts, error_message,
                 updated_at, on_dead)
               SELECT event_id, position, $2, 'x', $3, $4, $5, $6, $7 FROM outbox_events WHERE event_id = $1""",
            *(event_id, handler, status, attempts, error, at(changed), on_dead),
        )

    async def followed(self, position: int, *, number: int = 10) -> None:
        """Let one subscription begin before everything, and be at a position."""
        await self.subscription()
        await self.cursors()
        await self.progress(0, 0)
        await self.progress(number, position)

    async def of(self, event_id: UUID) -> asyncpg.Record:
        [told] = await self.connection.fetch("SELECT * FROM outbox_status WHERE event_id = $1", event_id)
        return told

    async def status(self, event_id: UUID) -> str:
        return str((await self.of(event_id))["status"])

    async def processed_at(self, event_id: UUID) -> datetime | None:
        moment: datetime | None = (await self.of(event_id))["processed_at"]
        return moment


@pytest.fixture(scope="module")
def log_url(postgres_server: servers.Server) -> Iterator[str]:
    async def migrated(url: str) -> None:
        engine = create_engine(url)
        await migrate(engine, Settings(contexts=()))
        await engine.dispose()

    with servers.fresh_database(postgres_server) as url:
        servers.run(migrated(url))
        yield url


@pytest.fixture
async def log(log_url: str) -> AsyncIterator[Log]:
    connection = await asyncpg.connect(log_url)
    await connection.execute(f"TRUNCATE {TABLES} RESTART IDENTITY")
    await connection.execute("INSERT INTO outbox_servers (identifier, floor) VALUES ('one', 0), ('two', 10)")
    yield Log(connection)
    await connection.close()


# --- the place of a cursor ----------------------------------------------------------------------------


async def test_a_cursors_place_is_its_readers_newest_row(log: Log) -> None:
    await log.followed(4, number=10)
    await log.execute("UPDATE outbox_progress SET position = 99 WHERE number = 9")
    await log.progress(11, 999, reader=OTHER)
    await log.execute("UPDATE outbox_cursors SET lease_relay = $1", OTHER)
    places = await log.connection.fetch("SELECT * FROM outbox_cursor_places ORDER BY shard")
    assert [place["shard"] for place in places] == list(range(32))
    assert {tuple(place)[:1] + tuple(place)[2:] for place in places} == {
        ("h", OTHER, READER, 4, (100, 100, ()), None, None, 1, at(10), 0)
    }


async def test_a_cursor_whose_reader_wrote_nothing_has_no_place(log: Log) -> None:
    event = await log.event()
    await log.subscription()
    await log.cursors()
    assert (
        await log.connection.fetchval("SELECT count(*) FROM outbox_cursor_places WHERE position IS NULL")
        == 32
    )
    assert await log.status(event) == "pending"


# --- status -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "snapshot", "status"),
    [
        (1, EVERYTHING, "delivered"),
        (0, EVERYTHING, "pending"),
        (1, "40:60:", "delivered"),
        (1, "40:60:50", "pending"),
        (1, "40:50:", "pending"),
        (1, "51:51:", "delivered"),
    ],
    ids=["behind", "ahead", "over", "ran", "above the newest completed", "the newest completed"],
)
async def test_an_event_is_pending_until_it_is_passed(
    log: Log, position: int, snapshot: str, status: str
) -> None:
    """At or below the position, and visible to the snapshot."""
    event = await log.event(xid=50)
    await log.subscription()
    await log.cursors()
    await log.progress(1, position, snapshot=snapshot)
    assert await log.status(event) == status


@pytest.mark.parametrize(
    ("late_position", "late_snapshot", "status"),
    [
        (1, "60:60:", "delivered"),
        (0, "60:60:", "pending"),
        (1, "40:60:50", "pending"),
        (None, None, "pending"),
    ],
    ids=["read", "not yet", "not by then", "none was"],
)
async def test_what_was_late_is_passed_up_to_where_it_is_read(
    log: Log, late_position: int | None, late_snapshot: str | None, status: str
) -> None:
    event = await log.event(xid=50)
    await log.subscription()
    await log.cursors()
    await log.progress(1, 1, snapshot="40:60:50")
    await log.execute(
        "UPDATE outbox_progress SET late_position = $1, late_snapshot = $2::text::pg_snapshot",
        *(late_position, late_snapshot),
    )
    assert await log.status(event) == status


async def test_what_a_queue_brings_to_an_outbox_without_subscriptions_is_delivered(log: Log) -> None:
    """T3: as `outbox consume --store-unhandled` says."""
    brought = await log.event(source="q")
    assert await log.status(brought) == "delivered"


async def test_before_anybody_has_ever_read_the_outbox_all_is_pending(log: Log) -> None:
    """D2: who reads it first gets all of it."""
    event_id = await log.event()
    assert await log.status(event_id) == "pending"


@pytest.mark.parametrize(("server", "status"), [(1, "pending"), (2, "delivered")])
async def test_below_a_servers_floor_nothing_is_late(log: Log, server: int, status: str) -> None:
    """What a dump brought has ids of another server's transactions."""
    event = await log.event(xid=5_000_000)
    await log.subscription()
    await log.cursors()
    await log.progress(1, 1, snapshot="10:10:", server=server)
    assert await log.status(event) == status


async def test_above_the_floor_the_snapshot_counts(log: Log) -> None:
    events = [await log.event(xid=50) for _ in range(11)]
    await log.subscription()
    await log.cursors()
    await log.progress(1, 11, snapshot="10:10:", server=2)
    assert [await log.status(event) for event in events[8:]] == ["delivered", "delivered", "pending"]


@pytest.mark.parametrize(
    ("deliveries", "status"),
    [
        ([], "delivered"),
        (["waiting"], "open"),
        (["leased"], "open"),
        (["done"], "delivered"),
        (["skipped"], "delivered"),
        (["dead"], "dead"),
        (["done", "dead", "waiting"], "open"),
        (["done", "dead"], "dead"),
    ],
)
async def test_what_is_passed_is_what_its_deliveries_are(
    log: Log, deliveries: list[str], status: str
) -> None:
    event = await log.event()
    await log.followed(1)
    for number, each in enumerate(deliveries):
        await log.delivery(event, each, handler=f"h{number}")
    assert await log.status(event) == status


async def test_a_delivery_before_all_have_passed_leaves_it_pending(log: Log) -> None:
    event = await log.event()
    await log.followed(1)
    await log.delivery(event, "dead")
    await log.subscription("behind")
    await log.cursors("behind", OTHER)
    await log.progress(1, 0, reader=OTHER)
    assert await log.status(event) == "pending"


@pytest.mark.parametrize(
    ("patterns", "source", "due"),
    [
        (("bank.paid",), None, True),
        (("no", "bank.*"), None, True),
        (("*",), None, True),
        (("bank_paid",), None, False),
        (("bank.pai",), None, False),
        ((), "queue", False),
    ],
)
async def test_only_who_is_due_is_waited_for(
    log: Log, patterns: tuple[str, ...], source: str | None, due: bool
) -> None:
    """R2: by type and by where the event comes from. Nobody else's cursor matters."""
    event = await log.event("bank.paid")
    await log.subscription("another", "shop.*")
    await log.subscription("h", *patterns, source=source)
    assert await log.status(event) == ("pending" if due else "delivered")


@pytest.mark.parametrize(
    ("source", "status"), [("queue", "pending"), ("other", "delivered"), (None, "delivered")]
)
async def test_what_a_queue_brought_is_for_its_own_handlers(
    log: Log, source: str | None, status: str
) -> None:
    event = await log.event(source="queue")
    await log.subscription("h", source=source)
    assert await log.status(event) == status


async def test_nobody_waits_for_a_retired_subscription(log: Log) -> None:
    event = await log.event()
    await log.subscription(retired=True)
    assert await log.status(event) == "delivered"


async def test_what_a_relay_has_in_hand_of_a_retired_subscription_is_open(log: Log) -> None:
    """R2, R13: it may come to be another handler's, as when it was renamed meanwhile, and no purge is to take it."""
    event = await log.event()
    await log.followed(1, number=10)
    await log.subscription("retired", retired=True)
    await log.delivery(event, "leased", handler="retired", changed=15)
    assert await log.status(event) == "open"


@pytest.mark.parametrize("status", ["waiting", "dead"])
async def test_what_a_retired_subscription_has_left_counts_for_nothing(log: Log, status: str) -> None:
    event = await log.event()
    await log.followed(1, number=10)
    await log.subscription("retired", retired=True)
    await log.delivery(event, status, handler="retired", changed=15, attempts=3, error="why")
    told = await log.of(event)
    assert tuple(told)[1:] == ("delivered", 0, at(10), None, 1)


@pytest.mark.parametrize(
    ("passed", "delivery", "delivered"),
    [(0, None, False), (1, None, True), (1, "waiting", False), (1, "dead", False), (1, "done", True)],
)
async def test_the_view_of_what_is_delivered_follows_the_same_rule(
    log: Log, passed: int, delivery: str | None, delivered: bool
) -> None:
    event = await log.event()
    await log.followed(passed, number=10)
    if delivery is not None:
        await log.delivery(event, delivery, changed=5, attempts=2)
    [told] = await log.connection.fetch("SELECT * FROM outbox")
    assert dict(told) == {
        "id": event,
        "event_type": "bank.paid",
        "payload": "{}",
        "occurred_at": START,
        "delivered": delivered,
        "delivered_at": at(10) if delivered else None,
        "retry_count": 0 if delivery is None else 2,
    }


@pytest.mark.parametrize("aggregate", [AGGREGATE, None], ids=["an aggregate's", "of no aggregate"])
async def test_the_cursor_of_its_own_shard_counts(log: Log, aggregate: UUID | None) -> None:
    event = await log.event(aggregate=aggregate)
    await log.followed(1)
    await log.progress(1, 0, reader=OTHER)
    await log.execute("UPDATE outbox_cursors SET reader = $1 WHERE shard <> 7", OTHER)
    assert await log.status(event) == "delivered"
    await log.execute("UPDATE outbox_cursors SET reader = $1 WHERE shard = 7", OTHER)
    assert await log.status(event) == "pending"


# --- failures -----------------------------------------------------------------------------------------


async def test_the_most_attempts_and_the_newest_error_that_still_matters_are_told(log: Log) -> None:
    event = await log.event()
    await log.followed(1)
    await log.delivery(event, "waiting", handler="a", changed=1, attempts=2, error="older")
    await log.delivery(event, "dead", handler="b", changed=2, attempts=3, error="newest", on_dead="continue")
    await log.delivery(event, "done", handler="c", changed=3, attempts=7, error="over")
    await log.delivery(event, "waiting", handler="d", changed=4)
    told = await log.of(event)
    assert (told["retry_count"], told["error_message"]) == (7, "newest")


async def test_without_deliveries_nothing_was_retried(log: Log) -> None:
    event = await log.event()
    await log.followed(1)
    told = await log.of(event)
    assert (told["retry_count"], told["error_message"]) == (0, None)


# --- moments ------------------------------------------------------------------------------------------


async def test_the_moment_is_that_of_the_first_progress_that_passes_it(log: Log) -> None:
    events = [await log.event() for _ in range(3)]
    await log.followed(1, number=10)
    await log.progress(20, 2)
    await log.progress(30, 2)
    assert [await log.processed_at(event) for event in events] == [at(10), at(20), None]


async def test_what_commits_late_was_passed_when_a_snapshot_saw_it(log: Log) -> None:
    event = await log.event(xid=50)
    await log.subscription()
    await log.cursors()
    for number, snapshot in enumerate(("40:40:", "45:60:50", "45:60:50", "60:60:", "70:70:")):
        await log.progress(number, number, snapshot=snapshot)
    assert await log.processed_at(event) == at(3)


async def test_a_new_server_passes_what_is_below_its_floor(log: Log) -> None:
    event = await log.event(xid=50)
    await log.followed(0, number=1)
    await log.progress(2, 5, snapshot="10:10:")
    await log.progress(3, 5, snapshot="10:10:", server=2)
    assert await log.processed_at(event) == at(3)


async def test_the_last_of_those_who_were_due_makes_the_moment(log: Log) -> None:
    event = await log.event()
    await log.followed(1, number=10)
    for name, reader, number in (("late", OTHER, 40), ("retired", FORMER, 50)):
        await log.subscription(name, retired=name == "retired")
        await log.cursors(name, reader)
        await log.progress(1, 0, reader=reader)
        await log.progress(number, 1, reader=reader)
    assert await log.processed_at(event) == at(40)


@pytest.mark.parametrize(("changed", "moment"), [(5, 10), (15, 15)])
@pytest.mark.parametrize("status", ["done", "dead"])
async def test_a_delivery_that_came_to_its_end_later_makes_the_moment(
    log: Log, changed: float, moment: float, status: str
) -> None:
    event = await log.event()
    await log.followed(1, number=10)
    await log.delivery(event, status, changed=changed)
    assert await log.processed_at(event) == at(moment)


@pytest.mark.parametrize("passed", [True, False])
async def test_what_is_open_or_pending_has_no_moment_yet(log: Log, passed: bool) -> None:
    event = await log.event()
    await log.followed(int(passed))
    await log.delivery(event, "waiting", changed=5)
    assert await log.processed_at(event) is None


async def test_where_nobody_was_due_it_is_the_moment_at_which_it_was_written(log: Log) -> None:
    event = await log.event(written=3)
    await log.subscription("h", "shop.*")
    assert await log.processed_at(event) == at(3)


async def test_a_subscription_that_began_later_changes_no_moment_of_before(log: Log) -> None:
    """R2: it gets what commits from then on, and what stands behind its first place was never due for it."""
    before = await log.event(written=1)
    await log.followed(1, number=10)
    await log.subscription("new")
    await log.cursors("new", OTHER)
    await log.progress(20, 1, reader=OTHER)
    after = await log.event(written=21)
    await log.progress(22, 2)
    await log.progress(23, 2, reader=OTHER)
    assert [await log.processed_at(event) for event in (before, after)] == [at(10), at(23)]
    await log.execute("UPDATE outbox_subscriptions SET retired_at = now() WHERE name = 'h'")
    assert [await log.processed_at(event) for event in (before, after)] == [at(1), at(23)]


async def test_what_a_cursor_passed_with_a_former_reader_keeps_its_moment(log: Log) -> None:
    first, second, third = [await log.event() for _ in range(3)]
    for number, position in ((0, 0), (10, 1), (11, 3)):
        await log.progress(number, position, reader=FORMER)
    for number, position in ((5, 0), (12, 2), (20, 2), (40, 3)):
        await log.progress(number, position)
    await log.subscription()
    # Its own were the numbers up to 10 of the one, and from 20 on of the other.
    await log.past(FORMER, 0, 10, until=15)
    await log.cursors(first=20)
    assert [await log.processed_at(event) for event in (first, second, third)] == [at(10), at(20), at(40)]


async def test_with_the_first_progress_of_a_reader_that_it_joined_a_cursor_passes_what_that_passed(
    log: Log,
) -> None:
    """Only the very first place of a cursor is one at which it did nothing."""
    event = await log.event(written=16)
    await log.progress(0, 0, reader=FORMER)
    await log.subscription()
    await log.past(FORMER, 0, 0, until=15)
    await log.cursors(first=20)
    await log.progress(10, 0)
    await log.progress(20, 1)
    assert await log.processed_at(event) == at(20)


async def test_what_is_replayed_is_pending_and_then_keeps_its_first_moment(log: Log) -> None:
    """R17: the cursor goes back, with a reader of its own."""
    event = await log.event()
    for number, position in ((0, 0), (10, 1)):
        await log.progress(number, position, reader=FORMER)
    await log.subscription()
    await log.past(FORMER, 0, 10, until=15)
    await log.cursors()
    await log.progress(16, 0)
    assert (await log.status(event), await log.processed_at(event)) == ("pending", None)
    await log.progress(17, 1)
    assert (await log.status(event), await log.processed_at(event)) == ("delivered", at(10))


# --- what it costs ------------------------------------------------------------------------------------

MANY = 100_000
PLACES = 20_000
HANDLERS = 8
FORMERS = 20
FILL = (
    f"""INSERT INTO outbox_events (event_id, event_type, event_version, aggregate_type, aggregate_id, payload,
          occurred_at, created_at, xid)
        SELECT gen_random_uuid(), 'bank.paid', 1, 'bank.wallet', gen_random_uuid(), '{{}}', now(),
               timestamptz '{START}' + number * interval '1 second', '50' FROM generate_series(1, {MANY}) AS number""",
    f"""INSERT INTO outbox_subscriptions (name, kind, patterns)
        SELECT 'h' || number, 'handler', ARRAY['bank.*'] FROM generate_series(1, {HANDLERS}) AS number""",
    f"""INSERT INTO outbox_cursors (subscription, shard, reader)
        SELECT name, shard, '{READER}' FROM outbox_subscriptions, generate_series(0, {SHARDS - 1}) AS shard""",
    f"""INSERT INTO outbox_progress (reader, number, position, recorded_at, server, snapshot)
        SELECT '{READER}', number, number * {MANY // PLACES},
               timestamptz '{START}' + number * interval '5 seconds', 1, '{EVERYTHING}'
        FROM generate_series(0, {PLACES}) AS number""",
    f"""INSERT INTO outbox_cursors_past (subscription, shard, reader, first_number, last_number, until)
        SELECT subscription, shard, '{READER}', number * 100, number * 100 + 99,
               timestamptz '{START}' + number * interval '500 seconds'
        FROM outbox_cursors, generate_series(0, {FORMERS - 1}) AS number""",
    f"UPDATE outbox_cursors SET first_number = {FORMERS * 100}",
    f"""INSERT INTO outbox_deliveries (event_id, position, handler, order_key, status)
        SELECT event_id, position, 'h1', event_id, 'done' FROM outbox_events WHERE position % {MANY // 5_000} = 0""",
)
PAGE = """
SELECT * FROM outbox_events JOIN outbox_status USING (event_id)
WHERE position <= {} ORDER BY position DESC LIMIT 50
"""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


def blocks(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.fixture
async def full(log: Log) -> Log:
    for statement in FILL:
        await log.execute(statement)
    return log


@pytest.mark.servers
@pytest.mark.parametrize("analysed", [True, False])
async def test_a_page_of_events_reads_what_concerns_them_and_no_more(full: Log, analysed: bool) -> None:
    """R13: the newest and the oldest, whether or not the server has counted the rows yet."""
    if analysed:
        await full.execute(f"ANALYZE {TABLES}")
    for newest in (MANY, MANY // 2, 5_000, 60):
        told = await full.connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {PAGE.format(newest)}"
        )
        [found] = json.loads(told)
        read_whole = {
            each["Relation Name"] for each in nodes(found["Plan"]) if each["Node Type"] == "Seq Scan"
        }
        assert read_whole & {"outbox_events", "outbox_progress", "outbox_deliveries"} == set()
        # Per event and subscription; they were 300 where every former reader of the oldest was looked at.
        assert blocks(found["Plan"]) / (50 * HANDLERS) < 60


@pytest.mark.parametrize(
    ("sensitive", "sealed", "shown"),
    [
        ("jsonb_build_array('*')", "jsonb_build_object()", "***"),
        ("jsonb_agg('other ' || n) || jsonb_build_array('field 100000')", "jsonb_build_object()", "***"),
        ("jsonb_object_agg('other ' || n, n)", "jsonb_build_object()", "100000"),
        ("NULL", "jsonb_object_agg('other ' || n, n)", "100000"),
        ("NULL", "jsonb_agg('other ' || n)", "***"),
    ],
    ids=["each is masked", "a list of names", "an object of names", "sealed", "a list of what is sealed"],
)
async def test_however_many_fields_a_payload_has_it_is_masked_within_a_deadline(
    log: Log, sensitive: str, sealed: str, shown: str
) -> None:
    """S, R9: whoever may insert an event could keep all who read the view from it; it took minutes."""
    await log.connection.execute(
        "INSERT INTO outbox_events (event_id, event_type, event_version, payload, occurred_at, sensitive) "
        "SELECT gen_random_uuid(), 'bank.noted', 1, jsonb_object_agg('field ' || n, n) "
        f"|| jsonb_build_object('$sealed', {sealed}), clock_timestamp(), {sensitive} "
        "FROM generate_series(1, 100000) AS n"
    )
    async with log.connection.transaction():
        await log.connection.execute("SET LOCAL statement_timeout = '20s'")
        masked = await log.connection.fetchval("SELECT payload ->> 'field 100000' FROM outbox")
    assert masked == shown


@pytest.mark.parametrize(
    ("sealed", "email"),
    [
        ({"email": {"key": "k", "text": "t"}}, "***"),
        ({"other": {"key": "k", "text": "t"}}, "a@b"),
        (["email"], "***"),
        ("email", "***"),
        (1, "***"),
        (None, "***"),
    ],
    ids=["it is sealed", "another is sealed", "a list", "a name", "a number", "null"],
)
async def test_where_nobody_knows_what_is_sealed_all_may_be_a_secret(
    log: Log, sealed: Any, email: str
) -> None:
    """S, R9: whoever writes rows of his own may write `$sealed` in another form."""
    payload = {"event_id": "one", "email": "a@b", "$sealed": sealed}
    await log.execute(
        "INSERT INTO outbox_events (event_id, event_type, event_version, payload, occurred_at) "
        "VALUES (gen_random_uuid(), 'bank.noted', 1, $1, clock_timestamp())",
        json.dumps(payload),
    )
    shown = json.loads(await log.connection.fetchval("SELECT payload - 'other' FROM outbox"))
    assert shown == {"event_id": "one", "email": email}
