"""A context of one test alone, on disk, for whoever finds handlers by name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

from outbox_kernel.kernel import catalogue

EVENTS = """
from outbox_kernel import DomainEvent, event


@event("shop.ordered")
class Ordered(DomainEvent):
    what: str
"""
HANDLERS = """
from outbox_kernel import handles
from {name}.events import Ordered

seen = []


@handles(Ordered, name="shop.Pack")
class Pack:
    async def handle(self, event: Ordered) -> None:
        seen.append(event.what)
"""


@attrs.frozen
class Shop:
    """The package, of a name that no other test has, since Python keeps what it imported."""

    name: str
    folder: Path

    def write(self, room: str, text: str) -> None:
        (self.folder / f"{room}.py").write_text(text.replace("{name}", self.name))

    def room(self, name: str) -> ModuleType:
        return import_module(f"{self.name}.{name}")

    @property
    def seen(self) -> list[str]:
        """What its handler has had; it is not imported by this."""
        found: list[str] = getattr(sys.modules.get(f"{self.name}.handlers"), "seen", [])
        return found

    def ordered(self, what: str) -> Any:
        return self.room("events").Ordered(what)


def shop_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Make one; of what others have defined in this process it sees nothing."""
    for each in ("handlers", "event_by_name"):
        monkeypatch.setattr(catalogue.definitions, each, {})
    shop = Shop(f"shop_of_{abs(hash(folder)):x}", folder / f"shop_of_{abs(hash(folder)):x}")
    shop.folder.mkdir()
    shop.write("__init__", "")
    shop.write("events", EVENTS)
    shop.write("handlers", HANDLERS)
    monkeypatch.syspath_prepend(folder)
    return shop
