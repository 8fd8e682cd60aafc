"""K5: discovery imports what has handlers, and reports all that fails, by module."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel import DiscoveryError, DomainEvent, discover_handlers, event

HANDLER = """
from kernel import handles
from kernel.catalogue import newest_event_type

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
