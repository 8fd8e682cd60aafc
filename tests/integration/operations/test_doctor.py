"""Doctor: each finding with a remedy, and a failure only where something is not delivered (O1, O5)."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import attrs
import pytest
from sqlalchemy.engine import make_url

import contexts.accounts.handlers
import contexts.messaging.topology  # noqa: F401 - the former registers handlers, this is changed below
from outbox_kernel.infrastructure.application import buildable_handlers
from outbox_kernel.infrastructure.operations.desk import Desk
from outbox_kernel.infrastructure.operations.health import examine
from outbox_kernel.infrastructure.operations.health_of_ground import examine_ground
from outbox_kernel.infrastructure.operations.health_of_tables import examine_tables
from outbox_kernel.infrastructure.operations.health_of_work import examine_work
from outbox_kernel.infrastructure.operations.overview import overview
from outbox_kernel.infrastructure.operations.verdicts import Check
from outbox_kernel.infrastructure.outbox.sql.inspection import OLDEST_TRANSACTION
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import DomainEvent, catalogue, event
from outbox_kernel.kernel.catalogue import isolated_definitions
from tests.market import Order
from tests.relaying import Recorder, handler

HANDLER = "bank.Letters"


@pytest.fixture(autouse=True)
def only_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what other tests of this process have registered, since no container here can make it."""
    handlers = catalogue.definitions.handlers
    mine = {name: found for name, found in handlers.items() if name.startswith("accounts.")}
    monkeypatch.setattr(catalogue.definitions, "handlers", mine)


async def work(outbox: Any) -> dict[str, Check]:
    found = await examine_work(outbox.desk, await overview(outbox.desk))
    return {each.check: each for each in [*found, *await examine_tables(outbox.desk)]}


async def ground(outbox: Any) -> dict[str, Check]:
    return {each.check: each for each in await examine_ground(outbox.desk)}


def with_query(url: str, **query: str) -> str:
    return make_url(url).update_query_dict(query).render_as_string(hide_password=False)


async def examined(
    url: str, relay_settings: RelaySettings | None = None, **settings: Any
) -> dict[str, Check]:
    chosen = Settings(database_url=url, **{"contexts": ("contexts.accounts",), **settings})
    found = await examine(chosen, relay_settings or RelaySettings(code_version="v1"), buildable_handlers)
    return {each.check: each for each in found}


async def test_an_outbox_at_rest_with_a_relay_is_well(outbox: Any) -> None:
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    await outbox.event()
    assert {each.state for each in (await work(outbox)).values()} == {"ok"}


async def test_without_a_relay_a_backlog_is_a_failure_and_an_empty_outbox_a_warning(outbox: Any) -> None:
    assert (await work(outbox))["relays"].state == "warn"
    await outbox.subscription()
    await outbox.event()
    found = (await work(outbox))["relays"]
    assert (found.state, found.detail) == ("fail", "none lives, and 1 event is undelivered")
    assert found.remedy == "start `outbox relay`"


async def test_a_subscription_that_nobody_reads_for_is_a_failure_though_relays_live(outbox: Any) -> None:
    """O1, R2."""
    await outbox.relay({"bank.Other": {}})
    await outbox.subscription()
    assert "readers" not in await work(outbox)
    await outbox.event()
    found = (await work(outbox))["readers"]
    assert (found.state, found.detail) == (
        "fail",
        "no live relay carries bank.Letters, and 1 event stands behind it",
    )
    assert found.remedy == "start a relay that does, or end it with `outbox retire bank.Letters`"
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    assert "readers" not in await work(outbox)


async def test_an_old_event_is_named_with_the_command_that_tells_why(outbox: Any) -> None:
    await outbox.relay()
    await outbox.subscription()
    event = await outbox.event(days_old=1)
    found = (await work(outbox))["oldest event"]
    assert found.state == "warn"
    assert found.remedy == f"`outbox show {event}` says what it waits for"


async def test_a_lease_of_nobody_fails_when_a_live_relay_does_not_take_it_over(outbox: Any) -> None:
    event = await outbox.event()
    await outbox.delivery(event, "leased", lease=await outbox.relay(live=False))
    assert (await work(outbox))["leases"].state == "warn"
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    assert (await work(outbox))["leases"].state == "ok"
    await outbox.execute("UPDATE outbox_deliveries SET updated_at = now() - interval '3 minutes'")
    found = (await work(outbox))["leases"]
    assert (found.state, found.detail) == ("fail", "1 is held by nobody, the oldest for 3.0 min")


async def test_a_cursor_of_a_relay_that_is_gone_is_such_a_lease(outbox: Any) -> None:
    """R3: as it runs out, it is taken over with its relay's deliveries."""
    await outbox.subscription()
    relay, epoch = await outbox.relay({HANDLER: {"bank.paid": 1}})
    await outbox.execute("UPDATE outbox_cursors SET lease_relay = $1, lease_epoch = $2", relay, epoch)
    assert (await work(outbox))["leases"].detail == "all are held by live relays"
    await outbox.execute("UPDATE outbox_relays SET expires_at = now() - interval '4 minutes'")
    found = (await work(outbox))["leases"]
    assert (found.state, found.detail) == ("warn", "32 are held by nobody, the oldest for 4.0 min")


async def test_deliveries_that_nobody_can_run_fail_with_both_remedies(outbox: Any) -> None:
    await outbox.relay()
    await outbox.subscription()
    await outbox.failed_event(status="waiting")
    found = (await work(outbox))["abilities"]
    assert found.state == "fail"
    assert found.detail.startswith("nobody can run 1 delivery: bank.Letters for ")
    assert found.remedy == "deploy the code that can, or end the handler with `outbox retire bank.Letters`"
    await outbox.execute("UPDATE outbox_subscriptions SET retired_at = now()")
    assert (await work(outbox))["abilities"].remedy == "`outbox retire bank.Letters` again ends them"


async def test_for_a_newer_version_the_remedy_is_the_code_alone(outbox: Any) -> None:
    """R9: its handler lives, and is not to be ended."""
    await outbox.relay({HANDLER: {"bank.paid": 1}}, patterns={HANDLER: ["bank.paid"]})
    await outbox.subscription(patterns=("bank.paid", "bank.noted"))
    await outbox.delivery(await outbox.event(version=2), "waiting")
    found = (await work(outbox))["abilities"]
    assert (found.state, found.remedy) == ("fail", "deploy the code that can")


async def test_deliveries_that_wait_while_no_relay_runs_wait_for_one(outbox: Any) -> None:
    """O1: to end their handlers would lose them, and any relay may be able to run them."""
    await outbox.subscription()
    for _ in range(2):
        await outbox.failed_event(status="waiting")
    found = (await work(outbox))["abilities"]
    assert found.detail.startswith("no relay is running, so nobody can run 2 deliveries: bank.Letters for ")
    assert (found.state, found.remedy) == ("fail", "start `outbox relay`, and look again")


async def test_a_queue_that_a_consumer_is_stuck_with_is_a_warning(outbox: Any) -> None:
    """T4, O5."""
    await outbox.relay()
    await outbox.pauses({"queue notes": {"reason": "it is away", "since": "2026-01-02T03:04:05+00:00"}})
    found = (await work(outbox))["queue"]
    assert found.state == "warn"
    assert found.detail == "notes is stuck since 2026-01-02 03:04, for process 7 on host-1: it is away"


@pytest.mark.parametrize(
    ("kind", "check", "detail", "remedy"),
    [
        (
            "handler",
            "handler",
            "bank.Letters stands still, 2 wait: it is away",
            "mend that, and it goes on by ",
        ),
        (
            "publisher",
            "publisher",
            "bank.Letters stands still, 2 wait: it is away",
            "mend the broker, and it goes on ",
        ),
    ],
)
async def test_who_stands_still_is_a_warning(
    outbox: Any, kind: str, check: str, detail: str, remedy: str
) -> None:
    """R7, O5: with what waits behind its cursor, and as deliveries."""
    await outbox.subscription()
    await outbox.execute("UPDATE outbox_subscriptions SET kind = $1", kind)
    await outbox.failed_event(status="waiting", handler=HANDLER)
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    await outbox.pauses({HANDLER: {"reason": "it is away", "since": "2026-01-02T03:04:05+00:00"}})
    found = (await work(outbox))[check]
    assert (found.state, found.detail) == ("warn", detail)
    assert (found.remedy or "").startswith(remedy)


async def test_a_sequence_that_a_copy_left_behind_is_a_failure_with_what_sets_it(outbox: Any) -> None:
    """R2b: its positions would be taken, or stand before what happened earlier."""
    await outbox.event()
    await outbox.event()
    assert (await ground(outbox))["positions"].state == "ok"
    await outbox.execute("SELECT setval('outbox_events_position_seq', 1)")
    found = (await ground(outbox))["positions"]
    assert (found.state, found.detail.partition(", as")[0]) == (
        "fail",
        "their sequence stands at 1, and the log at 2",
    )
    await outbox.execute("ALTER SEQUENCE outbox_events_position_seq RESTART")
    found = (await ground(outbox))["positions"]
    assert found.detail.startswith("their sequence stands at 0, and the log at 2, ")
    await outbox.execute(str(found.remedy))
    assert (await ground(outbox))["positions"].state == "ok"
    assert await outbox.value("SELECT nextval('outbox_events_position_seq')") == 3


@pytest.mark.parametrize(
    ("setting", "value", "state", "says"),
    [
        ("default_transaction_read_only", "on", "fail", "begin read-only, so that neither handlers nor"),
        ("default_transaction_isolation", "serializable", "warn", "begin as serializable: of handlers"),
        ("default_transaction_isolation", "repeatable read", "warn", "begin as repeatable read: of handlers"),
        ("statement_timeout", "20ms", "warn", "statement_timeout is 20 ms for sessions of user"),
        ("lock_timeout", "999", "warn", "lock_timeout is 999 ms for sessions of user"),
        ("idle_in_transaction_session_timeout", "900ms", "warn", "timeout is 900 ms for sessions"),
    ],
)
async def test_sessions_that_begin_as_no_handler_can_work_are_told(
    outbox: Any, setting: str, value: str, state: str, says: str
) -> None:
    """R12: those of the relay itself, and of who asks, do not mind."""
    await outbox.is_read()
    assert (await examined(outbox.url))["sessions"].state == "ok"
    database = make_url(outbox.url).database
    at = f"ALTER ROLE CURRENT_USER IN DATABASE {database}"
    await outbox.execute(f"{at} SET {setting} = '{value}'")
    try:
        found = await examined(outbox.url)
    finally:
        await outbox.execute(f"{at} RESET {setting}")
    assert (found["sessions"].state, found["work"].state if "work" in found else "told") == (state, "told")
    assert says in found["sessions"].detail
    assert f"SET {setting} = " in (found["sessions"].remedy or "")


async def test_row_security_that_hides_events_is_a_failure(outbox: Any) -> None:
    """R12: a relay of that user would see an empty log, and be content."""
    assert (await ground(outbox))["row security"].state == "ok"
    role = f"hidden_{uuid4().hex}"
    await outbox.execute(f"CREATE ROLE {role}; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    await outbox.execute(f"ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY; SET ROLE {role}")
    try:
        found = await ground(outbox)
    finally:
        await outbox.execute("RESET ROLE; ALTER TABLE outbox_events DISABLE ROW LEVEL SECURITY")
        await outbox.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert found["row security"].state == "fail"
    assert f"policies keep rows of outbox_events from user '{role}'" in found["row security"].detail
    assert found["row security"].remedy == f'ALTER ROLE "{role}" BYPASSRLS, or connect as the owner'
    assert "positions" not in found


async def test_dead_letters_and_paused_handlers_are_warnings(outbox: Any) -> None:
    await outbox.subscription()
    await outbox.execute("UPDATE outbox_subscriptions SET paused_at = now()")
    await outbox.failed_event()
    found = await work(outbox)
    assert (found["dead letters"].state, found["dead letters"].detail) == ("warn", "1 delivery is dead")
    assert found["paused"].remedy == "`outbox resume bank.Letters` lets it go on"


async def test_the_server_is_reached_heard_and_dated(outbox: Any) -> None:
    # The tables were made without migrations, so these are named.
    found = await examined(outbox.url)
    assert [name for name, each in found.items() if each.state != "ok"] == ["migrations", "relays"]
    assert "outbox_0001" in found["migrations"].detail
    assert found["listen"].detail.startswith("heard after ")
    assert "accounts.LogAccountCreated" in found["handlers"].detail


@pytest.mark.parametrize(("query", "pooler"), [({}, "warn"), ({"pgbouncer": "true"}, "ok")])
async def test_an_old_server_a_standby_and_a_pooler_are_told(
    outbox: Any, monkeypatch: pytest.MonkeyPatch, query: dict[str, str], pooler: str
) -> None:
    answer = Statement(
        "SELECT '9.6' AS version, 90600 AS number, 0 AS process_id, true AS standby, 'UTF8' AS encoding"
    )
    monkeypatch.setattr("outbox_kernel.infrastructure.operations.health.SERVER", answer)
    found = await examined(with_query(outbox.url, **query))
    assert (found["server"].state, found["server"].remedy) == (
        "fail",
        "upgrade it: the oldest supported is 15",
    )
    assert (found["primary"].state, found["primary"].remedy) == ("fail", "point DATABASE_URL at the primary")
    assert found["pooler"].state == pooler


async def test_a_clock_that_differs_is_told(outbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def an_hour_ago(_: Desk) -> datetime:
        return datetime.now(UTC) - timedelta(hours=1)

    monkeypatch.setattr(Desk, "clock", an_hour_ago)
    found = (await examined(outbox.url))["clock"]
    assert (found.state, found.detail[:26]) == ("warn", "this machine's clock is 36")
    assert "s ahead of the server's" in found.detail


async def test_an_unreachable_database_leaves_the_checks_of_the_code(outbox: Any) -> None:
    found = await examined("postgresql://nobody@127.0.0.1:1/nothing")
    assert [name for name, each in found.items() if each.state != "ok"] == ["connection"]
    assert found["connection"].remedy == "start the server, or correct DATABASE_URL"


async def test_a_channel_that_nothing_comes_back_on_is_a_warning(
    outbox: Any, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A listener in another database is as deaf as one behind a pooler.
    monkeypatch.setattr("outbox_kernel.infrastructure.operations.health_of_hearing.ECHO_SECONDS_MAX", 0.1)
    found = await examined(outbox.url, RelaySettings(listen_url=postgres_url))
    assert found["listen"].state == "warn"
    assert "every 5 s" in found["listen"].detail


@pytest.mark.parametrize(
    ("url", "state", "detail", "remedy"),
    [
        ("mysql://a/b", "fail", "OUTBOX_LISTEN_URL begins with mysql://", "write postgresql://"),
        ("postgresql://nobody@127.0.0.1:1/x", "warn", "connection refused", "correct OUTBOX_LISTEN_URL"),
    ],
)
async def test_a_listener_that_cannot_connect_is_told_by_its_own_setting(
    outbox: Any, url: str, state: str, detail: str, remedy: str
) -> None:
    found = (await examined(outbox.url, RelaySettings(listen_url=url)))["listen"]
    assert found.state == state
    assert detail in found.detail
    assert (found.remedy or "").startswith(remedy)
    assert "DATABASE_URL" not in f"{found.detail} {found.remedy}"


async def test_what_cannot_be_read_is_a_finding_and_the_others_are_still_made(outbox: Any) -> None:
    found = await examined(with_query(outbox.url, role="pg_monitor"))
    assert (found["work"].state, found["work"].remedy) == ("fail", "grant it, or connect as the owner")
    assert found["bloat"].state == "ok"


async def test_behind_a_lock_it_ends_and_names_the_oldest_transaction(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[Desk.__module__], "LOCK_SECONDS_MAX", 0.01)
    async with outbox.desk.connection.transaction():
        await outbox.execute("LOCK TABLE outbox_events")
        found = await examined(outbox.url)
    assert found["work"].detail.startswith("another session has held a lock on the outbox")
    assert found["oldest transaction"].detail.startswith("process ")


async def test_a_server_that_does_not_answer_is_a_finding(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_kernel.infrastructure.operations.health.ANSWER_SECONDS_MAX", 0)
    found = await examined(outbox.url)
    assert found["server"].detail == found["work"].detail == "the database did not answer within 0 s"


async def test_a_context_that_is_not_there_hides_no_work(outbox: Any) -> None:
    await outbox.failed_event()
    found = await examined(outbox.url, contexts=("nothing.here",))
    assert found["migrations"].state == found["handlers"].state == "fail"
    assert found["dead letters"].state == "warn"


async def test_before_the_tables_are_made_nothing_is_asked_of_them(
    outbox: Any, empty_postgres_url: str
) -> None:
    found = await examined(empty_postgres_url)
    assert [name for name, each in found.items() if each.state == "fail"] == ["migrations"]


async def test_a_writer_keeps_dead_rows_and_a_reader_of_another_database_does_not(
    outbox: Any, postgres_url: str
) -> None:
    # Idle after it has written, a transaction has no snapshot.
    every = OLDEST_TRANSACTION.text.removesuffix("LIMIT 1\n")
    writer, reader = await asyncpg.connect(outbox.url), await asyncpg.connect(postgres_url)
    wrote, read = writer.get_server_pid(), reader.get_server_pid()
    try:
        await writer.execute("BEGIN; CREATE TABLE draft ()")
        await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        found = [row["what"] for row in await outbox.rows(every)]
    finally:
        await writer.close()
        await reader.close()
    assert f"process {wrote} (unnamed, idle in transaction)" in found
    assert not [what for what in found if what.startswith(f"process {read} ")]


async def test_an_old_transaction_is_named_with_what_ends_it(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "outbox_kernel.infrastructure.operations.health_of_tables.TRANSACTION_SECONDS_MAX", -1
    )
    writer = await asyncpg.connect(outbox.url)
    try:
        await writer.execute("BEGIN; CREATE TABLE draft ()")
        found = (await work(outbox))["oldest transaction"]
    finally:
        await writer.close()
    assert found.state == "warn"
    assert re.fullmatch(
        r"let it end, or SELECT pg_terminate_backend\(\d+\): until then no dead row goes", found.remedy or ""
    )


async def test_a_transaction_whose_times_are_hidden_is_told_with_the_right_that_shows_them(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = Statement("SELECT 'process 7' AS what, '' AS ending, NULL::float8 AS seconds")
    monkeypatch.setattr("outbox_kernel.infrastructure.operations.health_of_tables.OLDEST_TRANSACTION", hidden)
    found = (await work(outbox))["oldest transaction"]
    assert found.detail == "process 7, whose times this user may not see (GRANT pg_read_all_stats)"


async def test_a_context_that_is_not_there_is_told_as_a_relay_tells_it(empty_postgres_url: str) -> None:
    found = (await examined(empty_postgres_url, contexts=("stor_of_nobody",)))["handlers"]
    assert found.state == "fail"
    assert found.detail.startswith("context 'stor_of_nobody' is not found from ")
    assert found.remedy is not None
    assert found.remedy.startswith("correct its name")


async def test_without_handlers_it_says_where_they_are_looked_for(
    outbox: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "quiet").mkdir()
    (tmp_path / "quiet" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(catalogue.definitions, "handlers", {})
    found = (await examined(outbox.url, contexts=("quiet",)))["handlers"]
    assert (found.state, found.detail) == ("warn", "no handler in quiet")


async def test_a_queues_handlers_are_made_and_counted_as_well(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R14: `outbox consume` with this code would not start."""
    letters = handler("bank.Letters", Recorder(), queue="letters")
    monkeypatch.setattr(catalogue.definitions, "handlers", {letters.name: letters})
    found = (await examined(outbox.url))["handlers"]
    assert (found.state, found.detail) == ("ok", "1 can be made: bank.Letters (queue letters)")

    class Needy:
        def __init__(self, mailer: str) -> None: ...

        async def handle(self, event: DomainEvent) -> None: ...

    needy = attrs.evolve(letters, handler=Needy)
    monkeypatch.setattr(catalogue.definitions, "handlers", {needy.name: needy})
    found = (await examined(outbox.url))["handlers"]
    assert found.state == "fail"
    assert "'bank.Letters' cannot be made by the container (Needy needs str)" in found.detail


async def test_a_handler_for_a_queue_that_nobody_declares_is_a_warning(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T3: the queue may be another application's."""
    assert "queues" not in await examined(outbox.url)
    elsewhere = handler("bank.Letters", Recorder(), queue="elsewhere")
    known = catalogue.definitions.handlers
    monkeypatch.setattr(catalogue.definitions, "handlers", {**known, elsewhere.name: elsewhere})
    found = (await examined(outbox.url))["queues"]
    assert (found.state, found.detail, found.remedy) == (
        "warn",
        "handler 'bank.Letters' is for queue 'elsewhere', which no context's topology declares",
        "correct the name or declare the queue, unless another application makes it",
    )


async def test_a_pattern_that_no_event_known_here_has_is_a_warning(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O1: misspelt, it is due for nothing, and its subscription stays."""
    assert "event types" not in await examined(outbox.url)
    misspelt = attrs.evolve(
        handler("bank.Letters", Recorder()), events=(), patterns=("AccountCreatde", "Account*")
    )
    known = catalogue.definitions.handlers
    monkeypatch.setattr(catalogue.definitions, "handlers", {**known, misspelt.name: misspelt})
    found = (await examined(outbox.url))["event types"]
    assert (found.state, found.detail, found.remedy) == (
        "warn",
        "handler bank.Letters is for 'AccountCreatde', and no event of that name is known here",
        "if 'AccountCreated' is meant, correct it, else let it be, if another service records such events",
    )


async def test_a_topology_that_cannot_be_is_a_failure(outbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """T2: neither a relay nor a consumer starts with it."""
    elsewhere = handler("bank.Letters", Recorder(), queue="elsewhere")
    monkeypatch.setattr(catalogue.definitions, "handlers", {elsewhere.name: elsewhere})
    monkeypatch.setattr("contexts.messaging.topology.QUEUES", ["elsewhere"])
    found = (await examined(outbox.url, contexts=("contexts.messaging",)))["topology"]
    assert (found.state, found.remedy) == ("fail", "write QUEUES = (Queue(…),)")


async def test_a_handler_named_like_a_publisher_is_a_failure(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: neither a relay nor a consumer starts with it."""
    taken = handler("messaging", Recorder())
    monkeypatch.setattr(catalogue.definitions, "handlers", {taken.name: taken})
    found = (await examined(outbox.url, contexts=("contexts.messaging",)))["topology"]
    assert (found.state, found.remedy) == ("fail", "give one of them another name")


async def test_an_alembic_of_the_applications_that_would_drop_the_outbox_is_a_warning(
    outbox: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3."""
    assert "alembic" not in await examined(outbox.url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alembic.ini").write_text("[alembic]\nscript_location = db\n")
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "env.py").write_text("context.configure()\n")
    found = (await examined(outbox.url))["alembic"]
    assert (found.state, found.detail.partition(",")[0]) == (
        "warn",
        "db/env.py does not leave the outbox to itself",
    )


async def test_a_missing_upcaster_is_a_failure(outbox: Any) -> None:
    with isolated_definitions():

        @event("bank.moved", version=2)
        class Moved(DomainEvent):
            what: str

        found = await examined(outbox.url)
    assert found["upcasters"].state == "fail"
    assert found["upcasters"].detail.startswith("event 'bank.moved' has no way from version 1 to 2")


async def test_more_dead_rows_than_live_ones_are_a_warning(
    outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_kernel.infrastructure.operations.health_of_tables.DEAD_ROWS_MIN", -1)
    monkeypatch.setattr(
        "outbox_kernel.infrastructure.operations.health_of_tables.BLOAT",
        Statement(
            "SELECT 'outbox_events' AS table_name, 1 AS live_rows, 2 AS dead_rows, clock_timestamp() AS vacuumed_at"
        ),
    )
    found = (await work(outbox))["bloat"]
    assert found.remedy == "end the oldest transaction if it is old, then VACUUM outbox_events"


async def test_a_handler_that_cannot_be_made_is_named(outbox: Any, tmp_path: Any, monkeypatch: Any) -> None:
    package = tmp_path / "ailing"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "handlers.py").write_text("import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = await examined(outbox.url, contexts=("ailing",))
    assert found["handlers"].state == "fail"
    assert "nothing_of_that_name" in found["handlers"].detail


async def test_an_aggregates_table_without_its_columns_is_told_with_the_statements(outbox: Any) -> None:
    """C6, O1: the mapping says that they are there, and the database knows better."""
    assert "aggregates" not in await examined(outbox.url), "no table of an aggregate is in this database"
    await outbox.desk.connection.execute("CREATE TABLE shop_orders (id serial PRIMARY KEY)")
    try:
        found = (await examined(outbox.url))["aggregates"]
        assert (found.state, found.detail) == (
            "fail",
            f"table {Order.__tablename__} has no column 'version' and no column 'revision'",
        )
        statements = str(found.remedy).split("`")[1::2]
        await outbox.desk.connection.execute(statements[0])
        found = (await examined(outbox.url))["aggregates"]
        assert found.detail == "table shop_orders has no column 'revision'"
        assert str(found.remedy).startswith(f"run `{statements[1]}`, or")
        await outbox.desk.connection.execute(statements[1])
        assert (await examined(outbox.url))["aggregates"].state == "ok"
    finally:
        await outbox.desk.connection.execute("DROP TABLE shop_orders")
