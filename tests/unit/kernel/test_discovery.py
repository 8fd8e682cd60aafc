"""K5: discovery imports what has handlers, and reports all that fails, by module."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outbox_kernel.errors import DefinitionError, DiscoveryError
from outbox_kernel.kernel import DomainEvent, check_upcasters, discover_handlers, event, upcasts
from outbox_kernel.kernel.catalogue import newest_event_type

HANDLER = """
from outbox_kernel.kernel import handles
from outbox_kernel.kernel.catalogue import newest_event_type

@handles(newest_event_type("discovery.opened").cls)
class {name}:
    async def handle(self, event): ...
"""

Write = Callable[[dict[str, str]], None]


@event("discovery.opened")
class Opened(DomainEvent):
    pass


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write modules under the package `shop`, and forget them afterwards."""

    def write_files(files: dict[str, str]) -> None:
        for name, source in {"__init__.py": "", **files}.items():
            path = tmp_path / "shop" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)

    monkeypatch.syspath_prepend(str(tmp_path))
    yield write_files
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def test_a_module_and_a_package_of_handlers_are_imported_whole(write: Write) -> None:
    write(
        {
            "accounts/__init__.py": "",
            "accounts/handlers.py": HANDLER.format(name="Log"),
            "mail/__init__.py": "",
            "mail/handlers/__init__.py": "",
            "mail/handlers/welcome.py": HANDLER.format(name="Welcome"),
            "mail/handlers/later/__init__.py": "",
            "mail/handlers/later/remind.py": HANDLER.format(name="Remind"),
        }
    )
    found = discover_handlers(["shop.accounts", "shop.mail"])
    assert [each.name for each in found] == ["accounts.Log", "mail.Remind", "mail.Welcome"]


def test_a_context_without_handlers_has_none(write: Write) -> None:
    write({"plain/__init__.py": ""})
    assert discover_handlers(["shop.plain"]) == ()


def test_all_that_fails_is_reported_by_module(write: Write) -> None:
    write(
        {
            "accounts/__init__.py": "",
            "accounts/handlers.py": "import nowhere",
            "mail/__init__.py": "",
            "mail/handlers/__init__.py": "",
            "mail/handlers/good.py": HANDLER.format(name="Good"),
            "mail/handlers/bad.py": "1 / 0",
            "mail/handlers/worse/__init__.py": "raise ValueError('worse')",
            "broken/__init__.py": "raise RuntimeError('broken')",
        }
    )
    with pytest.raises(DiscoveryError) as refused:
        discover_handlers(["shop.accounts", "shop.mail", "shop.broken", "shop.missing"])
    assert {name: type(error) for name, error in refused.value.failures.items()} == {
        "shop.accounts.handlers": ModuleNotFoundError,
        "shop.mail.handlers.bad": ZeroDivisionError,
        "shop.mail.handlers.worse": ValueError,
        "shop.broken.handlers": RuntimeError,
        "shop.missing.handlers": ModuleNotFoundError,
    }
    assert "shop.mail.handlers.bad: ZeroDivisionError: division by zero" in str(refused.value)


DEFINITIONS = """
from uuid import UUID
from outbox_kernel.kernel import AggregateRoot, DomainEvent, aggregate, event, handles, upcasts

@event("discovery.sold", version=2)
class Sold(DomainEvent):
    pass

@aggregate("discovery.shop")
class Shop(AggregateRoot):
    id: UUID

@upcasts("discovery.sold", from_version=1)
def lift(payload): return payload

@handles(Sold)
class Count:
    async def handle(self, event): ...
"""


def test_a_second_attempt_reports_what_failed_and_not_the_first_attempt(write: Write) -> None:
    """K5."""
    write({"sales/__init__.py": "", "sales/handlers.py": f"{DEFINITIONS}\nimport nowhere"})
    for _ in range(2):
        with pytest.raises(DiscoveryError, match="ModuleNotFoundError: No module named 'nowhere'"):
            discover_handlers("shop.sales")


def test_a_module_that_is_run_again_defines_its_own_anew(write: Write) -> None:
    """K1."""
    write({"sales/__init__.py": "", "sales/handlers.py": DEFINITIONS})
    (first,) = discover_handlers("shop.sales")
    module = importlib.reload(sys.modules["shop.sales.handlers"])
    (found,) = discover_handlers("shop.sales")
    assert found.handler is module.Count is not first.handler
    assert newest_event_type("discovery.sold").cls is module.Sold
    assert found.events == (module.Sold,)


def test_a_handler_of_an_event_that_was_defined_anew_is_told_to_follow(write: Write) -> None:
    """K5."""
    write(
        {
            "sales/__init__.py": "",
            "sales/events.py": DEFINITIONS.partition("@aggregate")[0],
            "sales/handlers.py": HANDLER.format(name="Log").replace("discovery.opened", "discovery.sold"),
        }
    )
    module = importlib.import_module("shop.sales.events")
    discover_handlers("shop.sales")
    importlib.reload(module)
    with pytest.raises(
        DefinitionError, match=r"'sales.Log' handles a Sold .* anew .*; run shop.sales.handlers again"
    ):
        discover_handlers("shop.sales")


def test_a_handler_that_stayed_with_an_older_version_is_refused(write: Write) -> None:
    """K5, K9: every event is restored as the newest class, so it would never get one."""
    write({"accounts/__init__.py": "", "accounts/handlers.py": HANDLER.format(name="Log")})
    discover_handlers("shop.accounts")

    @event("discovery.opened", version=2)
    class OpenedAnew(DomainEvent):
        pass

    upcasts("discovery.opened", from_version=1)(lambda payload: payload)
    sentence = (
        "handler 'accounts.Log' handles Opened, version 1 of event 'discovery.opened', but every such event is "
        "delivered as OpenedAnew, version 2; let it handle that one"
    )
    for check in (check_upcasters, lambda: discover_handlers("shop.accounts")):
        with pytest.raises(DefinitionError) as refused:
            check()
        assert str(refused.value) == sentence
