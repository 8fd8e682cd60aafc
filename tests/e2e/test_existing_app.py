"""An application that was there before us: declarative, keyed by integers, with its own Alembic, FastAPI and scripts.

`existing_app` is the application as it was. In `existing_app_adopted`, `adopt.patch` is the whole change that lets the
outbox in, `tell.patch` is what its aggregates record since, and the rest are its events and handlers.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from attrs import frozen

from tests import servers
from tests.waiting import until
from tests.wheels import environment, programs_with, ran, succeeded

pytestmark = pytest.mark.wheel

BEFORE = Path(__file__).parent / "existing_app"
ADOPTED = Path(__file__).parent / "existing_app_adopted"
LINES_MAX = 10
# What it has beside us; the first is somebody else's package, with the name of one of our folders.
PACKAGES = ("kernel==0.131.0", "alembic", "fastapi", "uvicorn", "psycopg[binary]")
AN_OLD_ORDER = """
INSERT INTO customers (name) VALUES ('Ada');
INSERT INTO orders (customer_id, status) VALUES (1, 'open');
INSERT INTO order_lines (order_id, article, cents) VALUES (1, 'tea', 250);
"""


@frozen
class Application:
    """A copy of it, in an environment and on a database of its own."""

    folder: Path
    programs: Path
    database_url: str

    def run(self, program: str, *arguments: str) -> str:
        return succeeded(ran(self.programs / program, *arguments, **self._surroundings()))

    def sql(self, statements: str) -> list[tuple[Any, ...]]:
        return servers.run(_fetched(self.database_url, statements))

    def adopt(self) -> None:
        for patch in ("adopt.patch", "tell.patch"):
            succeeded(ran("git", "apply", ADOPTED / patch, cwd=self.folder))
        shutil.copytree(ADOPTED / "shop", self.folder / "shop", dirs_exist_ok=True)

    @contextmanager
    def serving(self) -> Iterator[httpx.Client]:
        """Its API, and the relay in it, for as long as the block lasts."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            command = (
                self.programs / "python",
                "-m",
                "uvicorn",
                "shop.api:app",
                "--fd",
                str(listening.fileno()),
            )
            with subprocess.Popen(command, pass_fds=[listening.fileno()], **self._surroundings()) as process:
                address = "http://{}:{}".format(*listening.getsockname())
                try:
                    with httpx.Client(base_url=address, timeout=30) as client:
                        yield client
                finally:
                    process.terminate()
        assert process.returncode in (0, -15), process.returncode

    def _surroundings(self) -> dict[str, Any]:
        return {"cwd": self.folder, "env": environment(DATABASE_URL=self.database_url)}


async def _fetched(url: str, statements: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url, timeout=servers.CONNECT_SECONDS_MAX)
    try:
        if not statements.startswith("SELECT"):
            await connection.execute(statements)
            return []
        return [tuple(row) for row in await connection.fetch(statements)]
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return programs_with(wheel, *PACKAGES, folder=tmp_path_factory.mktemp("existing") / "venv")


@pytest.fixture
def application(programs: Path, empty_postgres_url: str, tmp_path: Path) -> Application:
    """It, with an order that is older than we are."""
    folder = tmp_path / "shop"
    shutil.copytree(BEFORE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    found = Application(folder, programs, empty_postgres_url)
    found.run("alembic", "upgrade", "head")
    found.sql(AN_OLD_ORDER)
    return found


def test_it_lets_the_outbox_in_by_ten_lines() -> None:
    lines = (ADOPTED / "adopt.patch").read_text().splitlines()
    assert 0 < len([line for line in lines if re.match(r"\+(?!\+\+ )", line)]) <= LINES_MAX


def test_its_alembic_adds_two_columns_and_leaves_our_tables_alone(application: Application) -> None:
    application.adopt()
    application.run("outbox", "migrate")
    application.run("alembic", "revision", "--autogenerate", "-m", "outbox columns")
    (written,) = set((application.folder / "migrations" / "versions").glob("*_outbox_columns.py"))
    operations = re.findall(r"op\.(\w+)\('?(\w+)", written.read_text().partition("def downgrade")[0])
    assert sorted(operations) == [("add_column", "orders"), ("add_column", "orders")]
    application.run("alembic", "upgrade", "head")
    application.run("alembic", "check")


def test_what_it_commits_from_its_api_and_its_scripts_is_handled_once(application: Application) -> None:
    application.adopt()
    application.run("alembic", "revision", "--autogenerate", "-m", "outbox columns")
    application.run("alembic", "upgrade", "head")
    application.run("outbox", "migrate")
    with application.serving() as client:
        assert client.post("/orders/1/payment").json() == {"status": "paid"}
        new = {"customer": "Ada", "article": "cake", "cents": "500"}
        assert client.post("/orders", params=new).json() == {"id": 2}
        assert application.run("python", "nightly.py").split() == ["2"]
        told = ["Thank you for 250 cents.", "order.cancelled 2", "order.paid 1", "order.placed 2"]
        asyncio.run(until(lambda: _has_mailed(client, told)))
    assert application.sql(
        "SELECT event_type, aggregate_type, aggregate_key, aggregate_version, status "
        "FROM outbox_events JOIN outbox_status USING (event_id) ORDER BY 3, 4"
    ) == [
        ("order.paid", "order", "1", 1, "delivered"),
        ("order.placed", "order", "2", 1, "delivered"),
        ("order.cancelled", "order", "2", 2, "delivered"),
    ]


async def _has_mailed(client: httpx.Client, texts: list[str]) -> bool:
    mailed = await asyncio.to_thread(lambda: client.get("/mails").json())
    assert len(mailed) <= len(texts), mailed
    return sorted(mailed) == texts


@pytest.mark.parametrize(
    "checker",
    [
        ("mypy", "--strict", "--no-incremental", "--python-executable"),
        ("pyright", "--project", ".", "--pythonpath"),
    ],
    ids=lambda checker: checker[0],
)
def test_it_is_typed_strictly(application: Application, checker: tuple[str, ...]) -> None:
    application.adopt()
    shutil.copy(ADOPTED / "pyrightconfig.json", application.folder)
    files = ("shop", "infrastructure", "nightly.py") if checker[0] == "mypy" else ()
    command = [sys.executable, "-m", *checker, application.programs / "python", *files]
    succeeded(ran(*command, cwd=application.folder, env={**environment(), "HOME": os.environ["HOME"]}))
