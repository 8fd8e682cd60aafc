"""A user of RabbitMQ with rights of the test's choice, gone at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from tests.brokers import Broker

PASSWORD = "pass"


@asynccontextmanager
async def somebody(
    broker: Broker, *, configure: str = ".*", write: str = ".*", read: str = ".*"
) -> AsyncIterator[str]:
    """A user who may do no more than this; his URL."""
    control, parts, user = broker.control, urlsplit(broker.url), f"tests-{uuid4().hex[:8]}"
    assert control is not None
    vhost = unquote(parts.path[1:]) or "/"
    await asyncio.to_thread(control, "add_user", user, PASSWORD)
    try:
        await asyncio.to_thread(control, "set_permissions", "-p", vhost, user, configure, write, read)
        yield parts._replace(netloc=f"{user}:{PASSWORD}@{parts.hostname}:{parts.port}").geturl()
    finally:
        await asyncio.to_thread(control, "delete_user", user)
