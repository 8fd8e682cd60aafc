"""The use cases of accounts on PostgreSQL: each account commits with its events, and no address twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from lagom import Container
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from contexts.accounts.domain import AccountNotFound, EmailTaken
from contexts.accounts.events import AccountEmailChanged, AccountRole
from contexts.accounts.persistence import SqlAccountsUnitOfWork, accounts_metadata
from contexts.accounts.use_cases import ChangeEmail, ChangeEmailHandler, SignUp, SignUpHandler
from outbox_kernel.infrastructure.outbox.migrator import downgrade
from outbox_kernel.infrastructure.settings import Settings
from tests.opening import events_told
from tests.stumbling import stumbling

EVENTS = """
SELECT aggregate_id, aggregate_version, event_type
FROM outbox_events ORDER BY position
"""


class InStep(SqlAccountsUnitOfWork):
    """Commits for the first time only when all others are about to: nobody has seen the others' rows."""

    def __init__(self, container: Container, barrier: asyncio.Barrier) -> None:
        super().__init__(container[async_sessionmaker])
        self._barrier: asyncio.Barrier | None = barrier

    async def commit(self) -> None:
        barrier, self._barrier = self._barrier, None
        if barrier is not None:
            await barrier.wait()
        await super().commit()


async def test_signing_up_commits_the_account_with_its_event(container: Container, rows: Any) -> None:
    account_id = await container[SignUpHandler].handle(SignUp("Ada@Example.org", AccountRole.ADMIN))
    assert await rows("SELECT id, email, role, version FROM accounts") == [
        (account_id, "ada@example.org", "admin", 1)
    ]
    assert await rows(EVENTS) == [(account_id, 1, "AccountCreated")]


async def test_an_address_that_is_taken_is_refused_and_leaves_nothing(
    container: Container, rows: Any
) -> None:
    await container[SignUpHandler].handle(SignUp("ada@example.org"))
    with pytest.raises(EmailTaken):
        await container[SignUpHandler].handle(SignUp("ADA@example.org"))
    assert len(await rows(EVENTS)) == 1


async def test_two_who_sign_up_with_one_address_at_once_give_one_account(
    container: Container, rows: Any
) -> None:
    barrier = asyncio.Barrier(2)
    attempts = (SignUpHandler(InStep(container, barrier)).handle(SignUp("ada@example.org")) for _ in range(2))
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)

    (account_id,) = (each for each in outcomes if not isinstance(each, BaseException))
    (refusal,) = (each for each in outcomes if isinstance(each, BaseException))
    assert isinstance(refusal, EmailTaken)
    assert await rows("SELECT id FROM accounts") == [(account_id,)]
    assert await rows(EVENTS) == [(account_id, 1, "AccountCreated")]


async def test_two_who_change_one_account_at_once_come_one_after_the_other(
    container: Container, rows: Any
) -> None:
    account_id = await container[SignUpHandler].handle(SignUp("ada@example.org"))
    barrier = asyncio.Barrier(2)
    await asyncio.gather(
        *(
            ChangeEmailHandler(InStep(container, barrier)).handle(ChangeEmail(account_id, email))
            for email in ("ada@one.example", "ada@two.example")
        )
    )
    changes = await rows(EVENTS)
    told = await events_told(container[Settings].required_database_url, "AccountEmailChanged")
    addresses = [event.email for event in told if isinstance(event, AccountEmailChanged)]
    assert [version for _, version, _ in changes] == [1, 2, 3]
    assert {*addresses} == {"ada@one.example", "ada@two.example"}
    assert await rows("SELECT email, version FROM accounts") == [(addresses[-1], 3)]


async def test_another_accounts_address_cannot_be_taken_over(container: Container, rows: Any) -> None:
    await container[SignUpHandler].handle(SignUp("ada@example.org"))
    brian = await container[SignUpHandler].handle(SignUp("brian@example.org"))
    with pytest.raises(EmailTaken):
        await container[ChangeEmailHandler].handle(ChangeEmail(brian, "ada@example.org"))
    assert len(await rows(EVENTS)) == 2


async def test_an_account_that_is_not_there_is_a_sentence(container: Container) -> None:
    with pytest.raises(AccountNotFound, match="there is no account"):
        await container[ChangeEmailHandler].handle(ChangeEmail(uuid4(), "ada@example.org"))


EVERYTHING = (
    "SELECT to_jsonb(accounts) FROM accounts UNION ALL SELECT to_jsonb(outbox_events) FROM outbox_events"
)


@pytest.mark.parametrize(
    ("handler", "command_for", "steps"),
    [
        (
            SignUpHandler,
            lambda _: SignUp("bo@example.org"),
            ["accounts.by_email", "record AccountCreated", "accounts.add", "commit"],
        ),
        (
            ChangeEmailHandler,
            lambda ada: ChangeEmail(ada, "ada@home.example"),
            ["accounts.get", "accounts.by_email", "record AccountEmailChanged", "commit"],
        ),
    ],
)
async def test_a_failure_between_two_steps_leaves_neither_state_nor_events(
    container: Container, rows: Any, handler: Any, command_for: Callable[[UUID], Any], steps: list[str]
) -> None:
    command = command_for(await container[SignUpHandler].handle(SignUp("ada@example.org")))
    before, failed = await rows(EVERYTHING), []
    attempts = stumbling(container[SqlAccountsUnitOfWork], lambda uow: handler(uow).handle(command))
    async for step in attempts:
        failed.append(step)
        assert await rows(EVERYTHING) == before
    assert failed == steps
    assert len(await rows(EVENTS)) == 2


async def test_the_declared_table_is_the_replayed_migrations(container: Container, rows: Any) -> None:
    def differences(connection: Connection) -> list[Any]:
        options = {
            "compare_server_default": True,
            "include_name": lambda name, kind, _: kind != "table" or name in accounts_metadata.tables,
        }
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), accounts_metadata))

    async with container[AsyncEngine].connect() as connection:
        assert await connection.run_sync(differences) == []
    assert await rows(
        "SELECT conname FROM pg_constraint WHERE conrelid = 'accounts'::regclass "
        "AND contype IN ('p', 'u') ORDER BY 1"
    ) == [("accounts_email_key",), ("accounts_pkey",)]


async def test_the_migration_goes_down_and_leaves_the_outbox(container: Container, rows: Any) -> None:
    settings = container[Settings]
    steps = await downgrade(container[AsyncEngine], "accounts@base", settings)
    assert [step.revision for step in steps] == ["accounts_0001"]
    assert await rows("SELECT to_regclass('accounts'), to_regclass('outbox_events') IS NULL") == [
        (None, False)
    ]
