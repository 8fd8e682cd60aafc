"""How a handler is made: by lagom, or by any callable of the application's (D3)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Protocol, Self, runtime_checkable
from unittest.mock import Mock

import attrs
import pytest
from lagom import Container
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker

from outbox_kernel.infrastructure.calling import check_buildable
from outbox_kernel.infrastructure.errors import HandlerNotBuilt
from outbox_kernel.infrastructure.in_process import InProcessEventDispatcher
from outbox_kernel.infrastructure.relay.subscription import carry
from outbox_kernel.infrastructure.scopes import scopes_of
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.domain import Noted

seen: list[str] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


@attrs.frozen
class Mailer:
    sender: str


@attrs.frozen
class Mails:
    mailer: Mailer

    async def handle(self, event: Noted) -> None:
        seen.append(f"{self.mailer.sender}: {event.what}")


class NeedsNothing:
    async def handle(self, event: Noted) -> None:
        seen.append(event.what)


def plain(kind: Any) -> Any:
    return Mails(Mailer("shop")) if kind is Mails else kind()


async def eventual(kind: Any) -> Any:
    return plain(kind)


@asynccontextmanager
async def ending(kind: Any) -> AsyncIterator[Any]:
    yield plain(kind)
    seen.append("the run is over")


async def run(container: Any, cls: type = Mails) -> None:
    registration = HandlerRegistration("mails", cls, (Noted,))
    await check_buildable([registration], container)
    seen.clear()
    await carry(registration, container, 10).call(Noted("hello"))


@pytest.mark.parametrize("container", [plain, eventual])
async def test_a_handler_is_made_by_a_callable_of_the_applications(container: Callable[[Any], Any]) -> None:
    await run(container)
    assert seen == ["shop: hello"]


async def test_what_a_callable_opens_for_a_run_ends_after_the_handler() -> None:
    await run(ending)
    assert seen == ["shop: hello", "the run is over"]


async def test_a_callable_is_asked_anew_for_each_run_and_for_handlers_that_need_nothing() -> None:
    asked: list[type] = []

    def asking(kind: type) -> Any:
        asked.append(kind)
        return kind()

    registration = HandlerRegistration("plain", NeedsNothing, (Noted,))
    call = carry(registration, asking, 10).call
    await call(Noted("a"))
    await call(Noted("b"))
    assert (asked, seen) == ([NeedsNothing] * 2, ["a", "b"])


async def test_the_in_process_dispatcher_makes_them_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """K6."""
    mails = HandlerRegistration("mails", Mails, (Noted,))
    monkeypatch.setattr(catalogue.definitions, "handlers", {"mails": mails})
    dispatcher = InProcessEventDispatcher(ending)
    await dispatcher.dispatch([Noted("hello")])
    assert (seen, dispatcher.failed) == (["shop: hello", "the run is over"], 0)


async def test_in_one_scope_lagom_and_a_callable_make_whatever_is_asked_for() -> None:
    container = Container()
    container[Mailer] = lambda: Mailer("shop")
    for each in (container, lambda kind: Mailer("shop")):
        async with scopes_of(each)() as make:
            assert await make(Mailer) == Mailer("shop")


async def test_a_context_manager_that_is_asked_for_is_given_as_it_is() -> None:
    class Session:
        async def __aenter__(self) -> Self:
            raise AssertionError

        async def __aexit__(self, *_: object) -> None: ...

    async with scopes_of(lambda kind: kind())() as make:
        assert isinstance(await make(Session), Session)


@pytest.mark.parametrize(
    ("gives", "sentence"),
    [
        (
            lambda kind: 1 / 0,
            r"handler 'mails' cannot be made by the container \(ZeroDivisionError: .*: let it make Mails",
        ),
        (
            lambda kind: None,
            "for handler 'mails' the container gives None, which has no `handle`: let it return",
        ),
    ],
)
async def test_a_callable_that_makes_no_handler_is_told_at_the_start(
    gives: Callable[[Any], Any], sentence: str
) -> None:
    with pytest.raises(HandlerNotBuilt, match=sentence):
        await run(gives)


class Port(Protocol):
    def send(self) -> None: ...


@runtime_checkable
class Sender(Protocol):
    def send(self) -> None: ...


class Desk(ABC):
    @abstractmethod
    def send(self) -> None: ...


class RealDesk(Desk):
    def send(self) -> None: ...


class Duck:
    def send(self) -> None: ...


def registered(kind: Any) -> HandlerRegistration:
    async def tell(event: Noted, given) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 - told below

    tell.__annotations__["given"] = kind
    return HandlerRegistration("tells", tell, (Noted,))


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        *((Mailer, None), (Mailer, "shop"), (Port, None), (Sender, None), (Sender, 5), (Desk, Duck())),
        *((Mailer | str, None), (Annotated[Mailer, "x"], None), (Callable[[], None], 5), (list[int], ())),
    ],
)
async def test_what_is_nothing_of_what_a_function_asks_for_is_refused_at_the_start(
    kind: Any, made: Any
) -> None:
    with pytest.raises(
        HandlerNotBuilt,
        match=r"'tells' cannot be called: .*tell asks for 'given', of type .*, and the container gives .*: let it",
    ):
        await check_buildable([registered(kind)], lambda _: made)


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        *((Mailer, Mailer("shop")), (Port, Duck()), (Sender, Duck()), (Desk, RealDesk()), (Any, None)),
        *((Mailer | None, None), (Annotated[Mailer, "x"], Mailer("shop")), (Callable[[], None], print)),
        *((list[int], [1]), (float, 1), (type[Mailer], Mailer), (Mailer, Mock(spec=Mailer))),
        (AsyncSession, async_scoped_session(async_sessionmaker(), scopefunc=int)),
    ],
)
async def test_whatever_may_stand_for_it_is_taken(kind: Any, made: Any) -> None:
    await check_buildable([registered(kind)], lambda _: made)


async def test_what_a_callable_cannot_make_for_a_function_is_named() -> None:
    with pytest.raises(
        HandlerNotBuilt,
        match=r"'tells' cannot be made by the container \(ZeroDivisionError: .*: let it make Mailer, as its 'given'",
    ):
        await check_buildable([registered(Mailer)], lambda _: 1 / 0)
