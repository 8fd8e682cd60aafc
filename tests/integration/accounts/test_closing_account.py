"""The demo's closing account finds what it is there to find."""

from __future__ import annotations

import pytest
from lagom import Container
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

import contexts.accounts.persistence  # noqa: F401 - its tables are what the account counts
from contexts.accounts.use_cases import ChangeEmail, ChangeEmailHandler, SignUp, SignUpHandler
from outbox_kernel.infrastructure.demo.readings import Readings

READINGS = Readings.over(["contexts.accounts"], schema=None)


@pytest.fixture(autouse=True)
async def two_accounts(container: Container) -> None:
    ada = await container[SignUpHandler].handle(SignUp("ada@example.org"))
    await container[ChangeEmailHandler].handle(ChangeEmail(ada, "ada@home.example"))
    await container[SignUpHandler].handle(SignUp("brian@example.org"))


async def reckoned(container: Container, damage: str | None = None) -> tuple[int, int]:
    """(streams with gaps, rows out of step) after somebody meddled with the rows."""
    async with container[AsyncEngine].begin() as connection:
        if damage is not None:
            await connection.execute(text(damage))
        return await READINGS.streams_with_gaps(connection), await READINGS.rows_out_of_step(connection)


async def test_it_balances_when_nobody_meddled(container: Container) -> None:
    assert await reckoned(container) == (0, 0)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("DELETE FROM outbox_events WHERE aggregate_version = 2", (0, 1)),
        ("DELETE FROM outbox_events WHERE aggregate_version = 1", (1, 1)),
        ("UPDATE outbox_events SET aggregate_version = 3 WHERE aggregate_version = 2", (1, 1)),
        ("UPDATE accounts SET version = version + 1", (0, 2)),
        ("DELETE FROM outbox_events", (0, 2)),
    ],
)
async def test_what_is_lost_or_out_of_step_is_counted(
    container: Container, damage: str, found: tuple[int, int]
) -> None:
    assert await reckoned(container, damage) == found


async def test_addresses_are_masked_before_anybody_sees_them(container: Container) -> None:
    async with container[AsyncEngine].connect() as connection:
        rows = await READINGS.events_after(connection, 0)
        assert [row["payload"]["email"] for row in rows] == ["***"] * 3
        assert await READINGS.events_after(connection, rows[-1]["position"]) == []
        assert await READINGS.counts(connection) == {"accounts": 2, "outbox_events": 3}
