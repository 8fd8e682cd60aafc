"""Whether the installed asyncpg has inside what is relied on; where it has not, mend asyncpg_inside.py."""

from __future__ import annotations

import asyncio
import gc
import ssl
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncpg
import pytest
from asyncpg import connect_utils

from outbox_kernel.infrastructure.postgres import asyncpg_inside as inside
from tests.unit.insides.versions import is_known, required

MODULE = "infrastructure/postgres/asyncpg_inside.py"
INSTALLED = version("asyncpg")


def test_the_version_installed_is_one_that_it_is_known_to_hold_for() -> None:
    assert is_known(INSTALLED, inside.KNOWN_FROM, inside.KNOWN_UP_TO), (
        f"asyncpg {INSTALLED} is installed, and {MODULE} is known to hold from {inside.KNOWN_FROM} to "
        f"{inside.KNOWN_UP_TO}: where this file and tests/integration/test_connections.py pass, move KNOWN_UP_TO"
    )


def test_no_older_version_is_let_in_than_it_is_known_to_hold_for() -> None:
    assert required("asyncpg") == f"asyncpg>={inside.KNOWN_FROM}", (
        f"pyproject.toml asks for another asyncpg than {MODULE} is known to hold for"
    )


async def asked_of(module: ModuleType) -> Any:
    """Make what asks the server whether it has TLS, as asyncpg does."""
    loop = asyncio.get_running_loop()
    return module.TLSUpgradeProto(loop, "somewhere", 5432, ssl.create_default_context(), False)  # noqa: FBT003 - as it does


@pytest.fixture
def hushed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A copy of asyncpg's module, hushed just now and not at the first import of an engine."""
    spec = find_spec("asyncpg.connect_utils")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(copy := module_from_spec(spec))
    monkeypatch.setattr(inside, "connect_utils", copy)
    inside.hush_upgrades()
    return copy


@pytest.mark.parametrize("name", inside.USED)
async def test_a_name_that_is_used_is_there(name: str) -> None:
    owners: dict[str, ModuleType | object] = {
        "asyncpg": asyncpg,
        "connect_utils": connect_utils,
        "TLSUpgradeProto": await asked_of(connect_utils),
        "Connection": asyncpg.Connection,
    }
    owner, _, attribute = name.partition(".")
    assert hasattr(owners[owner], attribute), (
        f"asyncpg {INSTALLED} has no {name} any more: mend {MODULE}, which has no public way, "
        f"since {inside.USED[name]}"
    )


@pytest.mark.parametrize("phrase", inside.SAID)
def test_a_phrase_that_is_looked_for_is_said(phrase: str) -> None:
    folder = Path(asyncpg.__file__).parent
    sources = [path for ending in ("py", "pyx") for path in folder.rglob(f"*.{ending}")]
    assert any(phrase in path.read_text() for path in sources), (
        f"asyncpg {INSTALLED} says {phrase!r} no more: mend {MODULE}, which needs it, since {inside.SAID[phrase]}"
    )


async def test_a_server_without_tls_is_told_by_its_phrase() -> None:
    asked = await asked_of(connect_utils)
    asked.data_received(b"N")
    with pytest.raises(ConnectionError) as told:
        await asked.on_data
    assert inside.is_without_tls(told.value)
    assert not inside.is_without_tls(ConnectionRefusedError("connection refused"))


async def test_who_awaits_the_answer_gets_the_loss_all_the_same(hushed: ModuleType) -> None:
    asked = await asked_of(hushed)
    asked.connection_lost(ConnectionResetError("gone"))
    with pytest.raises(ConnectionResetError, match="gone"):
        await asked.on_data


async def test_an_answer_that_nobody_awaits_any_more_is_not_complained_of(hushed: ModuleType) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told))
    asked, cancelled = await asked_of(hushed), await asked_of(hushed)
    asked.connection_lost(ConnectionResetError("gone"))
    cancelled.on_data.cancel()
    cancelled.connection_lost(None)
    del asked, cancelled
    gc.collect()
    assert complaints == []


def test_without_what_it_hushes_there_is_nothing_to_hush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "connect_utils", object())
    inside.hush_upgrades()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (asyncpg.InterfaceError("cannot perform operation: connection is closed"), True),
        (asyncpg.InterfaceError("cannot perform operation: another operation is in progress"), False),
        (
            asyncpg.InternalClientError("cannot switch to state 15; another operation (2) is in progress"),
            True,
        ),
        (asyncpg.InternalClientError("got result for unknown protocol state 3"), False),
        (ValueError("connection is closed"), False),
    ],
)
def test_a_lost_connection_is_told_from_a_wrong_use(error: Exception, expected: bool) -> None:
    assert inside.is_loss(error) is expected
