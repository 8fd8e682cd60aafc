"""Orders in the application's database, by the application's own sessions."""

import os

from sqlalchemy import Column, Integer, MetaData, Table, Uuid
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import registry

from contexts.orders.domain import Order
from outbox_kernel import aggregate_columns, install_capture, map_aggregate

orders = Table(
    "orders",
    MetaData(),
    Column("id", Uuid, primary_key=True),
    Column("cents", Integer, nullable=False),
    *aggregate_columns(),
)
map_aggregate(registry(), Order, orders)

engine = create_async_engine(os.environ["DATABASE_URL"].replace("postgresql:", "postgresql+asyncpg:", 1))
Session = async_sessionmaker(engine, expire_on_commit=False)

install_capture(Session)
