"""C1: a new aggregate's one event takes the row along, in one round trip, and nothing else is different."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy import Connection, event, insert, literal, select, text, union_all
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from outbox_kernel.errors import AggregateIdTaken, ConcurrencyError
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.outbox import bus_of
from tests.bank import Bank, loaded
from tests.domain import Announced, Opened, Wallet, journal

ROW, EVENT = "INSERT INTO bank_wallets", "INSERT INTO outbox_events"


class Noting(asyncpg.Connection):
    """A connection that notes what it prepares, where no listener of SQLAlchemy would be seen to listen."""

    prepared: list[str]

    async def prepare(self, query: str, **options: Any) -> Any:
        type(self).prepared.append(query)
        return await super().prepare(query, **options)


@pytest.fixture
async def noting(bank_url: str) -> AsyncIterator[AsyncEngine]:
    Noting.prepared = []
    engine = create_engine(bank_url, connect_args={"connection_class": Noting})
    yield engine
    await engine.dispose()


@pytest.fixture
async def by_owner(bank: Bank) -> AsyncIterator[None]:
    """A constraint of the application's own."""
    async with bank.engine.begin() as connection:
        await connection.execute(text("CREATE UNIQUE INDEX by_owner ON bank_wallets (owner)"))
    yield
    async with bank.engine.begin() as connection:
        await connection.execute(text("DROP INDEX by_owner"))


@pytest.fixture
async def rule(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A rule that makes several statements of one."""
    monkeypatch.setattr("outbox_kernel.infrastructure.outbox.outgoing._alone", set())
    async with bank.engine.begin() as connection:
        await connection.execute(
            text(
                "CREATE RULE noted AS ON INSERT TO bank_wallets DO ALSO INSERT INTO bank_journal VALUES (NEW.owner)"
            )
        )
    yield
    async with bank.engine.begin() as connection:
        await connection.execute(text("DROP RULE noted ON bank_wallets"))


def written(*words: str) -> list[str]:
    """The statements with all these words in them."""
    return [each for each in Noting.prepared if all(word in each for word in words)]


@pytest.mark.servers
async def test_a_new_aggregate_and_its_event_are_one_statement(bank: Bank, noting: AsyncEngine) -> None:
    wallet_id = await Bank.on(noting).open_wallet()
    assert len(written(ROW)) == len(written(EVENT)) == len(written(ROW, EVENT)) == 1
    assert await bank.stream(wallet_id) == ["1 ada"]
    assert await bank.row(wallet_id) == (0, 1)


@pytest.mark.parametrize("others", [0, 2])
async def test_an_event_goes_before_rows_that_it_cannot_take_along(
    bank: Bank, noting: AsyncEngine, others: int
) -> None:
    """An UPDATE, whose rows are counted, and several rows at once."""
    wallet_id = await bank.open_wallet()
    async with Bank.on(noting).session() as session:
        (await loaded(session, wallet_id)).enter("rent")
        session.add_all(Wallet(uuid4(), "silent") for _ in range(others))
        await session.commit()
    assert not written(EVENT, "bank_")
    assert await bank.stream(wallet_id) == ["1 ada", "2 rent"]
    assert await bank.entries(wallet_id) == ["rent"]


async def test_what_a_listener_inserts_is_no_row_to_take_along(bank: Bank, noting: AsyncEngine) -> None:
    """It may ask how many rows there were."""
    counted: list[int] = []

    def note(_mapper: object, connection: Connection, wallet: Wallet) -> None:
        lines = insert(journal).from_select(
            ["line"], union_all(select(literal("one")), select(literal("two")))
        )
        counted.append(connection.execute(lines).rowcount)

    event.listen(Wallet, "before_insert", note)
    try:
        wallet_id = await Bank.on(noting).open_wallet()
    finally:
        event.remove(Wallet, "before_insert", note)
    assert counted == [2]
    assert await bank.stream(wallet_id) == ["1 ada"]


async def test_an_emitted_event_takes_a_row_along_or_goes_alone(bank: Bank, noting: AsyncEngine) -> None:
    sessions = Bank.on(noting)
    for row in ([Wallet(uuid4(), "silent")], []):
        async with sessions.session() as session:
            session.add_all(row)
            bus_of(session).emit(Announced("said"))
            await session.commit()
    assert len(written(ROW, EVENT)) == 1
    assert len(written(EVENT)) == 2
    assert await bank.outbox() == ["- said", "- said"]


@pytest.mark.servers
async def test_a_taken_id_is_told_by_the_event_as_ever(bank: Bank, noting: AsyncEngine) -> None:
    """C4: the event is written first, so that the error knows whose stream it is."""
    wallet_id = await bank.open_wallet()
    async with Bank.on(noting).session() as session:
        twin = Wallet(wallet_id, "twin")
        twin.record(Opened("twin"))
        session.add(twin)
        with pytest.raises(AggregateIdTaken) as caught:
            await session.commit()
    assert (caught.value.aggregate_type, caught.value.aggregate_id) == ("bank.wallet", wallet_id)
    assert len(written(ROW, EVENT)) == 1


@pytest.mark.usefixtures("by_owner")
async def test_an_error_of_the_row_is_the_rows_own_and_shows_nothing_of_the_event(
    bank: Bank, bank_url: str
) -> None:
    """K11: the application meets its constraint as it would without capture."""
    await bank.open_wallet("ada")
    engine = create_engine(bank_url, hide_parameters=False)
    async with Bank.on(engine).session() as session:
        wallet = Wallet(uuid4(), "ada")
        wallet.record(Opened("a secret"))
        session.add(wallet)
        with pytest.raises(IntegrityError, match="by_owner") as caught:
            await session.commit()
    await engine.dispose()
    told: Any = caught.value.orig
    assert told.__cause__.detail == "Key (owner)=(ada) already exists."
    assert str(caught.value.statement).startswith(ROW)
    assert "'ada', 0, 1, 1)" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert await bank.outbox() == ["1 ada"]


@pytest.mark.usefixtures("rule")
async def test_a_table_with_rules_is_a_conflict_once_and_written_alone_from_then_on(bank: Bank) -> None:
    """C6: an application has them, and PostgreSQL takes no such INSERT in a WITH."""
    with pytest.raises(ConcurrencyError, match="a table has rules"):
        await bank.open_wallet()
    assert await bank.outbox() == []
    wallet_id = await bank.open_wallet()
    assert await bank.stream(wallet_id) == ["1 ada"]
    assert await bank.journal() == ["ada"]
