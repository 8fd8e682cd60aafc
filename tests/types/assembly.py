"""What puts an application together: engine, sessions, the outbox object and a relay (D4)."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, assert_type

from fastapi import FastAPI
from lagom import Container
from sqlalchemy import Column, MetaData, Table, Text, Uuid, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, registry, sessionmaker
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outbox_kernel import (
    EventBus,
    EventDispatcher,
    Outbox,
    OutboxEventDispatcher,
    OutboxMiddleware,
    OutboxRecord,
    OutboxRelay,
    Publisher,
    Queue,
    Settings,
    SqlAlchemyRepository,
    SqlAlchemyUnitOfWork,
    UnitOfWork,
    aggregate_columns,
    build_container,
    bus_of,
    clock,
    create_engine,
    current_headers,
    discover_handlers,
    install_capture,
    map_aggregate,
    outbox_metadata,
    session_factory,
)
from outbox_kernel.infrastructure.dashboard import ALL_RIGHTS, Dashboard, Operator, Right
from tests.types.domain import Counter, CounterRaised, Order
from tests.types.reacting import ShipOrder
from tests.types.use_cases import AlreadyShipped, ShipOrderHandler

orders = Table(
    "orders", MetaData(), Column("id", Uuid, primary_key=True), Column("street", Text), *aggregate_columns()
)
counters = Table("counters", MetaData(), Column("id", Uuid, primary_key=True), *aggregate_columns())
map_aggregate(registry(), Counter, counters)
map_aggregate(registry(), Order, orders)
assert_type(outbox_metadata, MetaData)


class SqlOrders(SqlAlchemyRepository[Order]):
    async def by_street(self, street: str) -> Order | None:
        return await self._session.scalar(select(Order).where(orders.c.street == street))


class SqlOrdersUnitOfWork(SqlAlchemyUnitOfWork):
    constraint_errors: ClassVar[Mapping[str, Callable[[], Exception]]] = {"orders_key": AlreadyShipped}

    @property
    def orders(self) -> SqlOrders:
        return SqlOrders(self.session, Order)

    @property
    def counters(self) -> SqlAlchemyRepository[Counter]:
        return self.repository(Counter)


async def sessions_capture() -> None:
    engine = create_engine("postgresql://localhost/shop")
    assert_type(engine, AsyncEngine)
    maker = session_factory(engine)
    assert_type(maker, async_sessionmaker[AsyncSession])
    uow = SqlOrdersUnitOfWork(maker)
    port: UnitOfWork = uow
    ShipOrderHandler(uow)
    async with uow as opened, port:
        assert_type(opened, SqlOrdersUnitOfWork)
        assert_type(await opened.counters.get(uuid.uuid4()), Counter | None)
        assert_type(opened.session, AsyncSession)
        assert_type(opened.bus, EventBus)
    own = async_sessionmaker(engine, expire_on_commit=False)
    assert_type(install_capture(own), async_sessionmaker[AsyncSession])
    install_capture(sessionmaker[Session]())
    async with own() as session:
        dispatcher: EventDispatcher = OutboxEventDispatcher(session)
        await dispatcher.dispatch([CounterRaised(1)])
        bus_of(session).emit(CounterRaised(2))
        assert_type(await OutboxMiddleware.flush(session, EventBus(), user_id="u-7"), int)
        record = await session.get(OutboxRecord, 5)
        assert_type(record, OutboxRecord | None)


async def a_relay_delivers() -> None:
    container = build_container(Settings.from_environment())
    discover_handlers(["shop"])
    relay = OutboxRelay(container[AsyncEngine], container)
    print(await relay.run_once(), await relay.run_until_idle(), current_headers(), clock.now())  # noqa: T201
    relay.stop()
    await relay.run()


def made_by(handler: type[Any]) -> Any:
    return (
        handler()
        if handler is not ShipOrder
        else ShipOrder(ShipOrderHandler(SqlOrdersUnitOfWork(session_factory(ENGINE))))
    )


ENGINE = create_engine("postgresql://localhost/shop")
outbox = Outbox(ENGINE, contexts=["shop"], container=made_by)


PUBLISHERS = (Publisher("orders", ("order.*",), exchange="orders"),)
QUEUES = (Queue("shipping", ("order.shipped",), exchange="orders"),)


@asynccontextmanager
async def warm(application: FastAPI) -> AsyncGenerator[dict[str, int], None]:
    yield {"warm": len(application.routes)}


fastapi = FastAPI(lifespan=outbox.lifespan())
with_its_own = FastAPI(lifespan=outbox.lifespan(warm, wait=True, on_end=print))
starlette = Starlette(lifespan=outbox.lifespan())
by_lagom = Outbox(container=Container())


async def authorize(request: Request) -> Operator | None:
    who = request.headers.get("x-who")
    return Operator(who, {"view", "retry"} if who == "ada" else ALL_RIGHTS) if who else None


def at_the_door(request: Request) -> Operator | Response:
    return Operator("eve") if request.cookies else RedirectResponse("/login")


fastapi.mount("/ops", outbox.dashboard(authorize=authorize, prefix="/shop", key="k" * 32))
starlette.mount("/ops", outbox.dashboard(authorize=at_the_door))
assert_type(outbox.dashboard(), Dashboard)
assert_type(Operator("eve").may(Right.PAYLOAD), bool)


async def the_object_gives_all() -> None:
    assert_type(outbox.session(), AsyncSession)
    assert_type(outbox.unit_of_work(), SqlAlchemyUnitOfWork)
    assert_type(outbox.relay(), OutboxRelay)
    maker: Callable[[], AsyncSession] = outbox.attach(async_sessionmaker(ENGINE))
    async with maker() as session:
        await outbox.dispatch(session, [CounterRaised(1)])
        assert_type(await session.get(Order, 5), Order | None)
    print(await outbox.status())  # noqa: T201 - it is only checked
