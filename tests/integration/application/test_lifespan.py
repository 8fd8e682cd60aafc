"""A relay in somebody's FastAPI or Starlette: it starts and ends with it, and whoever looks sees it die (D2, R11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette

from outbox_kernel import Outbox
from outbox_kernel.errors import ArgumentRefused, DatabaseUnreachable, NothingToDeliverTo, SchemaNotMigrated
from outbox_kernel.infrastructure.cancelling import CancelledByOthers
from tests.context_on_disk import Shop
from tests.waiting import until

Ask = Callable[..., Awaitable[list[Any]]]

STATUSES = "SELECT status FROM outbox_status"
LIVE = "SELECT count(*) FROM outbox_relays WHERE expires_at > clock_timestamp()"


@asynccontextmanager
async def serving(app: FastAPI | Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """What a server does: begin, answer, end."""
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        yield client


async def begin_by_the_protocol(app: FastAPI | Starlette) -> None:
    """Begin as a server does, which is to hear that it cannot be."""

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        assert message["type"] == "lifespan.startup.failed"

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)


async def test_fastapi_delivers_while_it_serves_and_gives_back_at_the_end(
    outbox: Outbox, shop: Shop, ask: Ask
) -> None:
    app = FastAPI(lifespan=outbox.lifespan())

    @app.post("/orders")
    async def order(what: str) -> None:
        async with outbox.unit_of_work() as uow:
            uow.emit(shop.ordered(what))
            await uow.commit()

    async def delivered() -> bool:
        return await ask(STATUSES) == ["delivered"]

    async with serving(app) as client:
        assert await ask(LIVE) == [1]
        assert (await client.post("/orders?what=cake")).status_code == 200
        await until(delivered)
        assert outbox.is_alive
    assert (shop.seen, await ask(LIVE)) == (["cake"], [0])


async def test_at_the_start_each_handler_is_made_once(shop: Shop, empty_postgres_url: str) -> None:
    """To see that it can be; whoever makes them may count."""
    made: list[str] = []

    def making(kind: type) -> Any:
        made.append(kind.__name__)
        return kind()

    outbox = Outbox(empty_postgres_url, contexts=shop.name, container=making)
    await outbox.migrate()
    async with serving(Starlette(lifespan=outbox.lifespan())):
        assert made == ["Pack"]


async def test_the_applications_own_lifespan_begins_before_and_ends_after(
    outbox: Outbox, shop: Shop, ask: Ask
) -> None:
    lives: list[Any] = []

    @asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[dict[str, str]]:
        lives.append(("begins", *await ask(LIVE)))
        yield {"oven": "hot"}
        lives.append(("ends", *await ask(LIVE)))

    app = FastAPI(lifespan=outbox.lifespan(own))

    @app.get("/oven")
    async def oven(request: Request) -> str:
        return str(request.state.oven)

    async with app.router.lifespan_context(app) as state:
        assert state == {"oven": "hot"}
        assert await ask(LIVE) == [1]
    assert lives == [("begins", 0), ("ends", 0)]


async def test_starlette_may_live_by_it_again_and_again(outbox: Outbox, ask: Ask) -> None:
    app = Starlette(lifespan=outbox.lifespan())
    for _ in range(2):
        async with serving(app):
            assert await ask(LIVE) == [1]
    assert await ask(LIVE) == [0]


@pytest.mark.parametrize("kind", [FastAPI, Starlette])
async def test_a_relay_that_cannot_start_fails_the_start(
    kind: type[FastAPI | Starlette], shop: Shop, empty_postgres_url: str
) -> None:
    down = Outbox("postgresql://nobody@127.0.0.1:1/x", contexts=shop.name)
    unmigrated = Outbox(empty_postgres_url, contexts=shop.name)
    for outbox, error in ((down, DatabaseUnreachable), (unmigrated, SchemaNotMigrated)):
        app = kind(lifespan=outbox.lifespan())
        with pytest.raises(error):
            await begin_by_the_protocol(app)


@pytest.mark.parametrize("kind", [FastAPI, Starlette])
async def test_one_that_would_deliver_to_nobody_fails_the_start(
    kind: type[FastAPI | Starlette], outbox: Outbox, shop: Shop
) -> None:
    (shop.folder / "handlers.py").unlink()
    with pytest.raises(NothingToDeliverTo):
        await begin_by_the_protocol(kind(lifespan=outbox.lifespan()))


async def test_what_fails_when_the_relay_registers_is_a_sentence_and_fails_the_start(
    outbox: Outbox, ask: Ask
) -> None:
    await ask("ALTER TABLE outbox_relays RENAME TO relays_of_old")
    with pytest.raises(SchemaNotMigrated, match="outbox_relays"):
        await begin_by_the_protocol(Starlette(lifespan=outbox.lifespan()))


async def test_one_that_dies_later_is_seen_and_the_application_may_end(
    outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[BaseException] = []
    over = asyncio.Event()

    def note(error: BaseException) -> None:
        ended.append(error)
        over.set()

    async with serving(Starlette(lifespan=outbox.lifespan(on_end=note))):
        [reading] = [task for task in asyncio.all_tasks() if task.get_name() == "outbox-read"]
        reading.cancel()  # as a handler that cancels whatever runs may do
        await asyncio.wait_for(over.wait(), 30)
        assert not outbox.is_alive
    assert [type(each) for each in ended] == [CancelledByOthers]
    assert "the relay in this process has ended: start the process again" in caplog.text


async def test_the_end_of_the_application_is_no_death_of_its_relay(
    outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[BaseException] = []
    async with serving(Starlette(lifespan=outbox.lifespan(on_end=ended.append))):
        pass
    assert (ended, outbox.is_alive) == ([], True)
    assert "has ended" not in caplog.text


async def test_any_program_may_deliver_for_the_length_of_a_block(
    outbox: Outbox, shop: Shop, ask: Ask
) -> None:
    async with outbox.unit_of_work() as uow:
        uow.emit(shop.ordered("tea"))
        await uow.commit()

    async def delivered() -> bool:
        return await ask(STATUSES) == ["delivered"]

    async with outbox.delivering():
        await until(delivered)
    assert shop.seen == ["tea"]


async def test_waiting_it_begins_once_the_database_is_migrated(
    shop: Shop, empty_postgres_url: str, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    outbox = Outbox(empty_postgres_url, contexts=shop.name)
    begun, end = asyncio.Event(), asyncio.Event()

    async def living() -> None:
        async with serving(Starlette(lifespan=outbox.lifespan(wait=True))):
            begun.set()
            await end.wait()

    async def waits() -> bool:
        return "waiting for the database" in caplog.text

    life = asyncio.create_task(living())
    await until(waits)
    await outbox.migrate()
    await asyncio.wait_for(begun.wait(), 30)
    end.set()
    await life
    assert await ask(LIVE) == [0]


async def bare(app: FastAPI) -> AsyncIterator[None]:
    yield


async def opened(app: FastAPI) -> None: ...


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        (5, "^own is of type int: give the function under @asynccontextmanager"),
        (bare, "^own is bare, .*: put @asynccontextmanager above it"),
        (opened, "^own is opened, .*: put @asynccontextmanager above it"),
    ],
)
def test_what_can_be_no_lifespan_is_refused_at_once(own: Any, sentence: str, outbox: Outbox) -> None:
    with pytest.raises(ArgumentRefused, match=sentence):
        outbox.lifespan(own)


async def test_a_lifespan_that_makes_nothing_to_enter_fails_the_start_in_a_sentence(outbox: Outbox) -> None:
    app = FastAPI(lifespan=outbox.lifespan(lambda app: None))  # type: ignore[arg-type,return-value]
    with pytest.raises(ArgumentRefused, match="put @asynccontextmanager above it"):
        await begin_by_the_protocol(app)


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
async def test_a_lifespan_that_nobody_called_fails_the_start_in_a_sentence(
    framework: Any, outbox: Outbox
) -> None:
    app = framework(lifespan=outbox.lifespan)
    with pytest.raises(ArgumentRefused, match=r"write `lifespan=outbox.lifespan\(\)`, with brackets"):
        await begin_by_the_protocol(app)


async def test_alembic_says_nothing_in_an_application_that_starts(
    outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        async with serving(FastAPI(lifespan=outbox.lifespan())):
            pass
    assert "relay starts" in caplog.text
    assert [each.getMessage() for each in caplog.records if each.name.startswith("alembic")] == []
