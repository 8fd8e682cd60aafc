"""The container: what it holds, and the sentence for a context that cannot be wired."""

from __future__ import annotations

from pathlib import Path

import pytest
from lagom import Container
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from outbox_kernel.errors import MissingUpcaster
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.errors import BadContext, BadSetting
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel.catalogue import isolated_definitions

URL = "postgresql://localhost/shop"


@pytest.fixture
def package(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A context of this test alone; its name is new, since Python keeps what it imported."""
    folder = tmp_path / f"context_of_{abs(hash(request.node.name))}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def build(package: Path) -> Container:
    return build_container(Settings(database_url=URL, contexts=(package.name,)))


def test_engine_and_sessions_are_made_once() -> None:
    container = build_container(Settings(database_url=URL, contexts=()))
    assert container[AsyncEngine] is container[AsyncEngine]
    assert container[async_sessionmaker] is container[async_sessionmaker]
    assert container[Settings].database_url == URL


def test_each_context_registers_what_it_has(package: Path) -> None:
    (package / "wiring.py").write_text("def register(container):\n    container[list] = lambda: [1]\n")
    assert build(package)[list] == [1]


def test_a_context_without_wiring_registers_nothing(package: Path) -> None:
    assert build(package)[Settings].contexts == (package.name,)


def test_an_event_without_a_way_from_its_older_version_stops_the_start(package: Path) -> None:
    """K9: rather than the first handler that meets one stored long ago."""
    (package / "wiring.py").write_text(
        "from outbox_kernel.kernel import DomainEvent, event\n\n\n"
        '@event("shop.opened", version=2)\nclass Opened(DomainEvent):\n    where: str\n\n\n'
        "def register(container):\n    pass\n"
    )
    with isolated_definitions(), pytest.raises(MissingUpcaster, match="no way from version 1 to 2"):
        build(package)


def test_a_context_that_does_not_import_is_named(package: Path) -> None:
    (package / "wiring.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(
        BadContext,
        match="cannot be imported, since the module 'nowhere_to_be_found' is not installed here: install",
    ) as refused:
        build(package)
    assert refused.value.context == package.name


def test_a_wiring_without_register_is_named(package: Path) -> None:
    (package / "wiring.py").touch()
    with pytest.raises(BadContext, match=r"has a wiring module without `register\(container\)`"):
        build(package)


def test_a_wiring_that_raises_is_named(package: Path) -> None:
    (package / "wiring.py").write_text("def register(container):\n    raise RuntimeError('no mail server')\n")
    with pytest.raises(
        BadContext, match=r"cannot be wired \(RuntimeError: no mail server\): mend `register`"
    ):
        build(package)


def test_a_sentence_of_the_wirings_own_stays(package: Path) -> None:
    (package / "wiring.py").write_text(
        "from outbox_kernel.infrastructure.errors import BadSetting\n"
        "def register(container):\n    raise BadSetting('MAIL_URL', 'is not set: give one')\n"
    )
    with pytest.raises(BadSetting, match="MAIL_URL is not set"):
        build(package)


def test_a_context_that_is_not_there_is_named() -> None:
    with pytest.raises(BadContext, match=r"context 'contexts_of_nobody\.at_all' is not found from"):
        build_container(Settings(database_url=URL, contexts=("contexts_of_nobody.at_all",)))
