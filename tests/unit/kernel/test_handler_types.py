"""D4: what `@handles` stands on stays what it is. mypy reads this as well, and each `ignore` must be needed."""

from __future__ import annotations

from typing import assert_type

from outbox_kernel import DomainEvent, StoredEvent, event, handles


@event("typed.opened")
class Opened(DomainEvent):
    owner: str


class Mailer:
    def __init__(self, sender: str) -> None:
        self.sender = sender


@handles(Opened)
class Greeting:
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer

    async def handle(self, event: Opened) -> None:
        """Greet."""


@handles(Opened, timeout=5)
async def greet(event: Opened, mailer: Mailer) -> int:
    return len(mailer.sender)


@handles("typed.*", Opened)
def count(event: StoredEvent | Opened, *, twice: bool = False) -> int:
    return 2 if twice else 1


async def test_classes_and_functions_keep_their_types() -> None:
    mailer = Mailer("shop")
    assert assert_type(Greeting(mailer), Greeting).mailer is mailer
    assert assert_type(await greet(Opened("ada"), mailer), int) == len("shop")
    assert assert_type(count(Opened("ada"), twice=True), int) == 1 + 1


def only_checked() -> None:
    """Never called."""
    Greeting("shop")  # type: ignore[arg-type]
    greet(Opened("ada"))  # type: ignore[call-arg, unused-coroutine]
    count(7)  # type: ignore[arg-type]
    handles(7)  # type: ignore[arg-type]
