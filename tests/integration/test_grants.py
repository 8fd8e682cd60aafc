"""The rights that docs/reference/outbox-table.md names are enough, and each of them is needed."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.infrastructure.dashboard import Dashboard
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork, create_engine, session_factory
from outbox_kernel.infrastructure.outbox.migrator import migrate
from tests.commands import outbox
from tests.domain import Announced, Wallet, bank_metadata
from tests.roles import ADA, GRANTS, ROLES, SETTINGS, Office, rights_of
from tests.visiting import visiting

OF_ITS_OWN_TABLES = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}"


@pytest.fixture
async def owner(empty_postgres_url: str) -> AsyncIterator[AsyncEngine]:
    """The database with the outbox in `events` and the bank in `public`, by the role that migrates."""
    engine = create_engine(empty_postgres_url)
    await migrate(engine, SETTINGS)
    async with engine.begin() as connection:
        await connection.run_sync(bank_metadata.create_all)
    yield engine
    await engine.dispose()


@pytest.fixture
async def engines(owner: AsyncEngine) -> AsyncIterator[dict[str, AsyncEngine]]:
    """An engine for each role of the page; roles are the whole server's, so their names are of this test."""
    names = {role: f"outbox_{role}_{uuid4().hex}" for role in ROLES}
    async with owner.begin() as connection:
        await connection.execute(text("SET LOCAL search_path = events"))
        for name in names.values():
            await connection.execute(text(f"CREATE ROLE {name}"))
        for grant in (*GRANTS, *(OF_ITS_OWN_TABLES.format(role) for role in ("app", "plain"))):
            await connection.execute(
                text(re.sub(rf"\b({'|'.join(ROLES)})\b", lambda role: names[role[0]], grant))
            )
    settings = {role: {"role": name, "search_path": "events, public"} for role, name in names.items()}
    settings["owner"] = {"search_path": "events, public"}
    found = {
        role: create_engine(owner.url, connect_args={"server_settings": each})
        for role, each in settings.items()
    }
    yield found
    for engine in found.values():
        await engine.dispose()
    async with owner.begin() as connection:
        for name in names.values():
            await connection.execute(text(f"DROP OWNED BY {name}"))
            await connection.execute(text(f"DROP ROLE {name}"))


def test_the_page_names_a_grant_for_every_role() -> None:
    assert {role for grant in GRANTS for role in grant.partition(" TO ")[2].split(", ")} == {*ROLES}


async def test_a_conflict_is_one_though_the_server_may_not_say_over_what(
    engines: dict[str, AsyncEngine], owner: AsyncEngine
) -> None:
    """C4: it names the key to those alone who may read it."""
    role = await _name_of(engines["app"])
    async with owner.begin() as connection:
        columns = "aggregate_type, aggregate_id, aggregate_version"
        await connection.execute(text(f"REVOKE SELECT ({columns}) ON events.outbox_events FROM {role}"))
    sessions = session_factory(engines["app"])
    async with sessions() as session, sessions() as rival:
        session.add(wallet := Wallet.open())
        await session.commit()
        theirs = await rival.get_one(Wallet, wallet.id)
        wallet.pay(1)
        await session.commit()
        theirs.pay(2)
        with pytest.raises(ConcurrencyError, match="another transaction wrote this aggregate first; load it"):
            await rival.commit()


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("app", "SELECT payload FROM outbox_events"),
        ("app", "SELECT headers FROM outbox_events"),
        ("app", "UPDATE outbox_events SET event_type = ''"),
        ("plain", "DELETE FROM outbox_events"),
        ("reader", "SELECT FROM outbox_events"),
        ("relay", "UPDATE outbox_events SET event_type = ''"),
        ("relay", "INSERT INTO outbox_events DEFAULT VALUES"),
        ("consumer", "UPDATE outbox_events SET event_type = ''"),
        ("viewer", "DELETE FROM outbox_deliveries"),
        ("operator", "UPDATE outbox_events SET event_type = ''"),
    ],
)
async def test_what_is_not_a_role_s_business_it_may_not_do(
    role: str, statement: str, engines: dict[str, AsyncEngine]
) -> None:
    """R1: nobody changes an event."""
    with pytest.raises(DBAPIError, match="permission denied for table outbox_"):
        await _run(engines[role], statement)


@pytest.mark.parametrize("role", ROLES)
async def test_each_right_of_a_role_is_enough_and_needed(
    role: str, engines: dict[str, AsyncEngine], owner: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """O1: with the grants of the page each does its whole work; without any of them it is told in a sentence which."""
    work = getattr(Office(engines), role)
    names = {each: await _name_of(engines[each]) for each in ROLES}
    await work()
    for right in rights_of(role):
        caplog.clear()
        await _run(engines["owner"], right.taken_from(role, names))
        told = await _what_is_told_by(work, caplog)
        assert re.search(right.refusal, told), f"{role} without {right.what}: {told or 'nothing'}"
        # A relay that lacked a right may not have given back what it held. And as after a move to another server.
        await _run(
            engines["owner"],
            *(
                right.given_to(role, names),
                "DELETE FROM outbox_relays",
                "UPDATE outbox_cursors SET lease_relay = NULL",
            ),
            "UPDATE outbox_servers SET identifier = 'another'",
        )


async def test_the_doctor_names_the_right_that_a_relay_lacks(engines: dict[str, AsyncEngine]) -> None:
    """R12: each right of the page's, and no other; not at its first dead letter."""
    names = {each: await _name_of(engines[each]) for each in ROLES}
    office = Office(engines)
    for role in ("relay", "viewer", "operator"):
        assert [each.state for each in await office.doctor_on_rights(role)] == ["ok"]
    for right in rights_of("relay"):
        what, _, table = right.what.partition(" ON ")
        if table.startswith("SCHEMA"):
            continue  # without it there is no table to be asked about
        await _run(engines["owner"], right.taken_from("relay", names))
        [told] = await office.doctor_on_rights("relay")
        assert (
            told.detail
            == f"user {names['relay']!r} is to relay, and lacks {right.what.replace(' ON ', ' on ')}"
        )
        assert re.fullmatch(rf'GRANT {what} ON \w+\.{table} TO "{names["relay"]}"', str(told.remedy))
        await _run(engines["owner"], str(told.remedy))
    assert [each.state for each in await office.doctor_on_rights("relay")] == ["ok"]


LOOKING = ("status", "doctor", "events", "show {event}", "history bank.wallet:{wallet}", "failed")
MENDING = (
    *("retry --handler dead --yes", "skip --handler dead --waiting --yes", "pause dead", "resume dead"),
    *("replay dead --from-position 1 --again", "replay dead --event {event}", "purge --older-than 0 --yes"),
    *(
        "keys rotate",
        f"forget {ADA} --yes",
        "retire dead --pattern bank.announced --yes",
        "retire dead --yes",
    ),
)


@pytest.mark.parametrize(("role", "commands"), [("viewer", LOOKING), ("operator", (*LOOKING, *MENDING))])
async def test_each_command_does_with_what_the_page_grants(
    role: str, commands: tuple[str, ...], engines: dict[str, AsyncEngine], owner: AsyncEngine, tmp_path: Path
) -> None:
    office = Office(engines)
    await office.relay()
    await office.relay()
    await office.app()
    url = owner.url.set(drivername="postgresql").update_query_dict({"role": await _name_of(engines[role])})
    environment = {"DATABASE_URL": url.render_as_string(hide_password=False), "OUTBOX_SCHEMA": "events"}
    async with owner.connect() as connection:
        event = await connection.scalar(
            text("SELECT max(event_id::text) FROM events.outbox_events WHERE event_type = 'bank.noted'")
        )
        wallet = await connection.scalar(text("SELECT max(aggregate_id::text) FROM events.outbox_events"))
    for command in commands:
        words = command.format(event=event, wallet=wallet).split()
        done = await asyncio.to_thread(outbox, *words, folder=tmp_path, **environment)
        assert done.returncode == 0 or words == ["doctor"], done.stderr
        assert "denied" not in done.stdout + done.stderr


async def _what_is_told_by(work: Callable[[], Awaitable[None]], caplog: pytest.LogCaptureFixture) -> str:
    """What is raised, and what the log has."""
    try:
        await work()
    except Exception as error:  # noqa: BLE001 - whatever it is, it must be such a sentence
        caplog.records.append(logging.makeLogRecord({"msg": f"{type(error).__name__}: {error}"}))
    return "\n".join(record.getMessage() for record in caplog.records)


async def _run(engine: AsyncEngine, *statements: str) -> None:
    async with engine.begin() as connection:
        for statement in statements:
            await connection.execute(text(statement))


async def _name_of(engine: AsyncEngine) -> str:
    async with engine.connect() as connection:
        return str(await connection.scalar(text("SELECT current_role")))


async def test_who_looks_by_the_dashboard_needs_no_more_than_a_viewer_has(
    engines: dict[str, AsyncEngine], owner: AsyncEngine
) -> None:
    uow = SqlAlchemyUnitOfWork(session_factory(engines["app"]))
    async with uow:
        uow.repository(Wallet).add(Wallet.open())
        uow.emit(Announced("opened"))
        await uow.commit()
    dashboard = Dashboard(SETTINGS, engines["viewer"])
    async with visiting(dashboard) as visitor:
        for path in ("/", "/events?text=a", "/events/1", "/subscriptions", "/dead-letters", "/relays"):
            await visitor.get(path)
        await visitor.get("/confirm/purge?days=1")
        await visitor.get("/aggregate?key=bank.wallet:1", 404)
        # What is more than to look is refused by the server, too.
        page = await visitor.get("/confirm/purge?days=1")
        assert (await visitor.send(page.form("/do/purge"), follow=False)).status_code == 503
