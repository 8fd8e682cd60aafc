"""Places one order through a unit of work and one through a plain session; prints their ids."""

import asyncio

from contexts.orders.domain import Order
from contexts.orders.persistence import Session, engine
from contexts.orders.use_cases import PlaceOrder

from outbox_kernel import SqlAlchemyUnitOfWork


async def main() -> None:
    print(await PlaceOrder(SqlAlchemyUnitOfWork(Session))(1250))  # noqa: T201 - for the test to read
    order = Order.place(300)
    async with Session.begin() as session:
        session.add(order)
    print(order.id)  # noqa: T201 - as above
    await engine.dispose()


asyncio.run(main())
