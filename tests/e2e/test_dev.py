"""`outbox dev`: everything in one command, and nothing left of it but the data (O1, O2)."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import asyncpg
import httpx
import pytest

from outbox_kernel.infrastructure.addresses import AddressRefused, listen
from outbox_kernel.infrastructure.cli import main
from outbox_kernel.infrastructure.dev import DevFolder, FolderRefused
from tests import servers
from tests.processes import Serving
from tests.waiting import until


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that the server of whoever runs the tests may enter; below pytest's own, root's server may not."""
    with tempfile.TemporaryDirectory(prefix="outbox-dev-") as made:
        Path(made).chmod(0o711)
        yield Path(made) / "kept"


def curl(line: str) -> httpx.Response:
    """Do what the line says that is there to be pasted."""
    words = shlex.split(line)
    headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
    return httpx.post(words[2], headers=headers, content=words[words.index("-d") + 1])


def test_killed_it_keeps_its_data_and_stopped_it_leaves_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_key = {"OUTBOX_MASTER_KEYS": ""}
    with Serving("dev", "--folder", str(folder), "--port", "0", "--json", **own_key) as server:
        told: dict[str, Any] = json.loads(server.first_output())
        assert told["folder"] == str(folder.resolve())
        assert httpx.get(told["docs"]).status_code == 200
        # The dashboard stands beside the API, needs no token, and answers this machine alone.
        assert "Overview" in httpx.get(told["dashboard"]).text
        assert httpx.get(told["dashboard"], headers={"host": "evil.example"}).status_code == 403
        assert httpx.get(told["dashboard"].rstrip("/"), follow_redirects=True).status_code == 200
        assert httpx.get(f"{told['url']}/dashboards").status_code == 401
        signed_up = curl(told["curl"])
        assert signed_up.status_code == 201, signed_up.text
        # A second one on the same folder, and one at the same port.
        with (
            pytest.raises(FolderRefused, match="is in use by another `outbox dev`"),
            DevFolder(folder).held(),
        ):
            pass
        port = urlsplit(told["url"]).port
        with pytest.raises(AddressRefused, match=f"port {port} of 127.0.0.1 is taken"):
            listen("127.0.0.1", port or 0)
        # The token of whoever has the account, made beside it.
        with pytest.raises(SystemExit):
            main(["token", signed_up.json()["id"], "--folder", str(folder)])
        bearer = {"authorization": f"Bearer {capsys.readouterr().out.strip()}"}
        found = httpx.get(told["url"] + signed_up.headers["location"], headers=bearer)
        assert found.json()["email"] == "ada@example.org"
        # What is committed is delivered.
        assert servers.run(profile_of(told["database_url"], found.json()["id"]))

    # Killed, as leaving the block does; the next one finds what it kept.
    with Serving("dev", "--folder", str(folder), "--port", "0", **own_key) as server:
        page = printed_page(server)
        assert curl(line_with("curl", page)).status_code == 409
        database = line_with("postgresql://", page).split()[-1]
        assert server.interrupt() == 0
    assert f"data           {folder.resolve()}" in page
    assert not Path(parse_qs(urlsplit(database).query)["host"][0]).exists()
    # O6: with what addresses are sealed by, as with the token's key, only its owner opens them.
    for key in ("token-key", "master-key"):
        assert (folder / key).stat().st_mode & 0o077 == 0


def test_a_sample_shows_whatever_there_can_be_and_is_played(folder: Path) -> None:
    words = ("dev", "--sample", "--folder", str(folder.with_name("sampled")), "--port", "0")
    with Serving(*words, "--json") as server:
        told: dict[str, Any] = json.loads(server.first_output())
        overview = httpx.get(told["dashboard"]).text
        for said in ("billing.ChargeCard", "A relay vanished", "stands still", "An operator holds it"):
            assert said in overview
        assert servers.run(is_played(told["database_url"]))
        assert server.stop() == 0
    # The next one finds it there.
    with Serving(*words) as server:
        page = printed_page(server)
        assert "beside a sample in which nothing is delivered" in page
        assert server.interrupt() == 0


async def is_played(url: str) -> bool:
    """Wait until its relays have renewed their leases, as they do while it is played."""
    connection = await asyncpg.connect(url)

    async def renewed() -> bool:
        is_renewed = "renewed_at > started_at + interval '1 second'"
        query = f"SELECT bool_and({is_renewed}) FROM outbox_relays WHERE expires_at > now()"
        return bool(await connection.fetchval(query))

    try:
        await until(renewed)
    finally:
        await connection.close()
    return True


def printed_page(server: Serving) -> str:
    assert server.process.stdout is not None
    return "".join(iter(server.process.stdout.readline, "Ctrl-C stops all of it; the data stay.\n"))


def line_with(words: str, page: str) -> str:
    return next(line.strip() for line in page.splitlines() if words in line)


async def profile_of(url: str, account_id: str) -> bool:
    connection = await asyncpg.connect(url)

    async def is_there() -> bool:
        return bool(
            await connection.fetchval("SELECT count(*) FROM profiles WHERE account_id = $1", UUID(account_id))
        )

    try:
        await until(is_there)
    finally:
        await connection.close()
    return True
