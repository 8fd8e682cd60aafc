"""Every test here, and of consuming, runs on each broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.brokers import OwnBroker
from tests.conformance.publishing.adapters import InMemory, Stage, on_rabbit


@pytest_asyncio.fixture(params=["memory", "rabbitmq"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    if request.param == "memory":
        yield InMemory()
        return
    own: OwnBroker = request.getfixturevalue("own_broker")
    async with on_rabbit(own.broker) as found:
        yield found
