"""What an operator says of a handler holds under its next name, and of its former one (R2, R6, R17)."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_kernel.infrastructure.operations import Desk, Selection
from outbox_kernel.infrastructure.operations.mending import choose_for_retry, retry
from outbox_kernel.infrastructure.operations.replaying import replay, rewind
from outbox_kernel.infrastructure.relay.subscription import Renaming
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.relaying import Act, Stage, handler


def renamed(act: Act, **options: Any) -> HandlerRegistration:
    return handler("now", act, renamed_from="former", **options)


@pytest.fixture
def _unmoved(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are so many receipts that the turn of these has yet to come."""

    async def move_none(_: Renaming) -> None:
        pass

    monkeypatch.setattr(Renaming, "move_receipts", move_none)


# --- an effect that is to happen again --------------------------------------------------------------------


async def allow_again(stage: Stage, which: str) -> None:
    desk = Desk(stage.witness, now=stage.at(1))
    if which == "all since":
        assert (await rewind(desk, "now", 1, again=True)).effects == 1
    else:
        event = (await stage.event("a"))["event_id"]
        assert (await replay(desk, "now", event_id=event, again=True)).due == 1


@pytest.mark.parametrize("which", ["one event", "all since"])
async def test_an_effect_that_is_replayed_again_happens_again(stage: Stage, which: str) -> None:
    """R6, R17: there is a receipt of it under each name, and its run would meet the other one."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put("a")
    await stage.drain(renamed(act))
    assert len(await stage.receipts()) == 2
    await allow_again(stage, which)
    await stage.drain(renamed(act), at=1)
    assert await stage.journal() == ["a", "a"]


@pytest.mark.parametrize("which", ["one event", "all since"])
@pytest.mark.usefixtures("_unmoved")
async def test_an_effect_of_the_former_name_that_is_replayed_again_happens_again(
    stage: Stage, which: str
) -> None:
    """R6, R17: its receipt has yet to be moved."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put("a")
    await stage.drain(handler("former", act))
    await stage.drain(renamed(act))
    assert await stage.receipts() == [("a", "former", "done")]
    await allow_again(stage, which)
    await stage.drain(renamed(act), at=1)
    assert await stage.journal() == ["a", "a"]


async def test_what_is_half_done_and_retried_again_has_its_effect_again(stage: Stage) -> None:
    """R6."""

    async def act(event: Any) -> None:
        await stage.enter("first")
        if not mended:
            await stage.enter("second")

    mended: list[bool] = []
    await stage.put("a")
    await stage.drain(renamed(act))
    mended.append(True)
    desk = Desk(stage.witness, now=stage.at(1))
    assert (await retry(desk, await choose_for_retry(desk, Selection()), again=True)).changed == 1
    await stage.drain(renamed(act), at=2)
    assert await stage.journal() == ["first", "first"]
    assert await stage.events() == {"a": "delivered"}


async def test_a_name_that_a_handler_no_longer_says_it_had_is_another_handlers(stage: Stage) -> None:
    """R6: who has it by now keeps the receipts of its effects."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put("a")
    await stage.drain(renamed(act))
    both = handler("now", act), handler("former", act)
    await stage.drain(*both)
    await allow_again(stage, "all since")
    assert ("a", "former", "done") in await stage.receipts()
