"""What the container gives for sessions and units of work, however they are asked for (D3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from lagom import Container
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from outbox_kernel.infrastructure.calling import check_buildable
from outbox_kernel.infrastructure.container import build_container
from outbox_kernel.infrastructure.database import SqlAlchemyUnitOfWork
from outbox_kernel.infrastructure.errors import DefinedTwice, HandlerNotBuilt, NotBound
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.infrastructure.wired import Wired
from outbox_kernel.kernel import UnitOfWork
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.domain import Noted

SETTINGS = Settings(database_url="postgresql://localhost/shop", contexts=())


class OwnSession(AsyncSession):
    """A class of the application's."""


def bound(maker: Any) -> AsyncEngine | None:
    engine: AsyncEngine | None = maker.kw["bind"]
    return engine


def engine_of(uow: Any) -> AsyncEngine | None:
    return bound(uow._session_factory)  # noqa: SLF001 - what it was made with


@pytest.mark.parametrize(
    "key", [async_sessionmaker, async_sessionmaker[AsyncSession], async_sessionmaker[Any]], ids=str
)
def test_every_spelling_of_the_maker_gives_the_one_that_is_bound(key: Any) -> None:
    container = build_container(SETTINGS)
    assert container[key] is container[async_sessionmaker]
    assert bound(container[key]) is container[AsyncEngine]


@pytest.mark.parametrize("key", [SqlAlchemyUnitOfWork, UnitOfWork])
def test_a_unit_of_work_that_nobody_wired_is_on_the_engine_of_the_settings(key: Any) -> None:
    container = build_container(SETTINGS)
    assert isinstance(container[key], SqlAlchemyUnitOfWork)
    assert engine_of(container[key]) is container[AsyncEngine]
    assert container[key] is not container[key]


@attrs.frozen
class Asks:
    """A use case, with its port as it is usually written."""

    uow: UnitOfWork
    sessions: async_sessionmaker[AsyncSession]


def test_two_use_cases_that_ask_for_a_unit_of_work_get_one_each() -> None:
    container = build_container(SETTINGS)
    one, other = container[Asks], container[Asks]
    assert one.uow is not other.uow
    assert engine_of(one.uow) is bound(one.sessions) is container[AsyncEngine]


@pytest.mark.parametrize(
    "key",
    [sessionmaker, sessionmaker[Session], async_sessionmaker[OwnSession], Session, AsyncSession],
    ids=str,
)
def test_what_nobody_has_bound_is_refused_by_name(key: Any) -> None:
    with pytest.raises(
        NotBound, match=r"^nobody has said what \S+ is bound to: let a wiring module define it"
    ):
        build_container(SETTINGS)[key]


def test_what_a_wiring_defines_itself_is_given() -> None:
    container, own = build_container(SETTINGS), async_sessionmaker(class_=OwnSession)
    container[async_sessionmaker[OwnSession]] = lambda: own
    assert container[async_sessionmaker[OwnSession]] is own


async def test_a_handler_with_sessions_bound_to_nothing_stops_the_start() -> None:
    """R14: on a container that says nothing of a database, each delivery would fail."""

    class Asking:
        def __init__(self, sessions: async_sessionmaker[AsyncSession]) -> None:
            self.sessions = sessions

        async def handle(self, event: Noted) -> None: ...

    with pytest.raises(
        HandlerNotBuilt, match=r"\(.*nobody has said what async_sessionmaker\[AsyncSession\] is bound"
    ):
        await check_buildable([HandlerRegistration("asking", Asking, (Noted,))], Container())


def test_two_contexts_that_wire_one_key_are_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("wired_orders", "wired_bills"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "wiring.py").write_text(
            "from outbox_kernel import SqlAlchemyUnitOfWork, UnitOfWork\n\n\n"
            "def register(container):\n    container[UnitOfWork] = SqlAlchemyUnitOfWork\n"
        )
    with pytest.raises(DefinedTwice) as refused:
        build_container(attrs.evolve(SETTINGS, contexts=("wired_orders", "wired_bills")))
    assert refused.value.contexts == ("wired_orders", "wired_bills")
    assert str(refused.value).startswith(
        "the container's UnitOfWork is defined by context 'wired_orders' and by context 'wired_bills': let each "
    )


def test_a_key_of_the_applications_own_is_not_a_contexts_to_define() -> None:
    container = build_container(SETTINGS)
    assert isinstance(container, Wired)
    container.begin("orders")
    with pytest.raises(DefinedTwice, match="is defined by the application itself and by context 'orders'"):
        container[Settings] = SETTINGS
