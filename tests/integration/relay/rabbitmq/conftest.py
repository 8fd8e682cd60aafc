"""A post office per test: a topology of its own names, in the vhost of this run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.brokers import Broker, OwnBroker
from tests.post import Post, post_at


@pytest_asyncio.fixture
async def post(rabbitmq_broker: Broker) -> AsyncIterator[Post]:
    async with post_at(rabbitmq_broker) as found:
        yield found


@pytest_asyncio.fixture
async def own_post(own_broker: OwnBroker) -> AsyncIterator[Post]:
    """In a broker that the test may stop, fill and alarm."""
    async with post_at(own_broker.broker) as found:
        yield found
