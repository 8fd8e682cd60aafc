"""The measured server: `python -m benchmarks.api.server`, told where by its standard input, and ended by its end."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import closing
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from lagom import Container
from sqlalchemy.ext.asyncio import async_sessionmaker

from benchmarks.api.api import Captured, Plain
from outbox_kernel.infrastructure.addresses import listen
from outbox_kernel.infrastructure.database import create_engine, session_factory
from outbox_kernel.infrastructure.http import BearerTokens, HttpSettings, create_app
from outbox_kernel.infrastructure.http.serving import ApiServer
from outbox_kernel.infrastructure.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

POOL_SIZE = 16


async def _main() -> None:
    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(partial(asyncio.StreamReaderProtocol, told), sys.stdin)
    task = json.loads(await told.readline())
    # A line per request costs both endpoints the same, and tells nothing here.
    logging.getLogger("outbox").setLevel(logging.WARNING)
    engine = create_engine(task["url"], pool_size=POOL_SIZE, max_overflow=0)
    app = create_app(_container(engine), BearerTokens(task["key"]), HttpSettings(docs=False))
    server = ApiServer(app, HttpSettings())
    with closing(listen("127.0.0.1", 0)) as listening:
        where = json.dumps(listening.getsockname())
        serving = asyncio.create_task(server.serve(listening, lambda: print(where, flush=True)))
        await told.read()
        server.stop()
        await serving
    await engine.dispose()


def _container(engine: AsyncEngine) -> Container:
    container = Container()
    container[Settings] = Settings(contexts=("benchmarks.api",))
    container[Captured] = Captured(session_factory(engine))
    container[Plain] = Plain(async_sessionmaker(engine, expire_on_commit=False))
    return container


if __name__ == "__main__":
    loop_factory = import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_main())
