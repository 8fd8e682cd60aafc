"""The past: a cursor that goes back brings what it had passed, in order, and no row is written for it (R17)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.kernel import Reject
from tests.relaying import Recorder, Stage, handler
from tests.serving import has_run, serving
from tests.waiting import until


async def rewind(stage: Stage, name: str, position: int = 0) -> None:
    """What an operator's command writes."""
    await stage.witness.execute(
        "UPDATE outbox_cursors SET rewind_to = $2 WHERE subscription = $1", name, position
    )


async def test_what_was_passed_comes_again_in_order_for_that_handler_alone(stage: Stage) -> None:
    """R4, R5: from the position on to which it goes back."""
    seen, other, wallet = Recorder(), Recorder(), uuid4()
    both = handler("h", seen), handler("other", other)
    await stage.put("a", "b", "c", of=wallet)
    await stage.drain(*both)
    await rewind(stage, "h", (await stage.event("a"))["position"])
    await stage.put("d", of=wallet)
    await stage.drain(*both)
    assert seen.seen == ["a", "b", "c", "b", "c", "d"]
    assert other.seen == ["a", "b", "c", "d"]
    assert await stage.deliveries() == {}
    await stage.drain(*both)
    assert len(seen.seen) == 6


async def test_an_effect_that_has_happened_does_not_happen_again(stage: Stage) -> None:
    """R6: the receipts are there."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put("a", "b")
    await stage.drain(handler("h", act))
    await rewind(stage, "h")
    await stage.drain(handler("h", act))
    assert await stage.journal() == ["a", "b"]


async def test_a_relay_that_serves_goes_back_when_it_is_told(stage: Stage) -> None:
    """R17: with no poll to remind it."""
    seen = Recorder()
    await stage.put("a")
    async with serving(stage.relay(handler("h", seen), at=None, poll_interval_seconds=3600)):
        await until(lambda: has_run(seen, 1))

        async def goes_back() -> bool:
            # Until the place behind it is written, there is nothing to go back from.
            await rewind(stage, "h")
            await Desk(stage.witness).wake_relays()
            return len(seen.seen) > 1

        await until(goes_back)


@pytest.mark.parametrize("parked", [True, False])
async def test_what_is_unsettled_keeps_its_place(stage: Stage, parked: bool) -> None:
    """R4: what is behind it waits when it is read again, too."""
    trouble = Reject("never") if parked else ValueError("not today")
    seen, wallet = Recorder().fail("b", trouble), uuid4()
    await stage.put("a", "b", "c", of=wallet)
    await stage.drain(handler("h", seen))
    before = await stage.deliveries()
    await rewind(stage, "h")
    await stage.drain(handler("h", seen))
    assert seen.seen == ["a", "b", "a"]
    assert (await stage.deliveries()).items() >= before.items()
    assert (await stage.delivery("b", "h"))["attempts"] == 1


async def test_what_had_a_delivery_and_fails_again_is_tried_again(stage: Stage) -> None:
    """R7: its attempts begin anew."""
    seen = Recorder().fail("a", times=2)
    await stage.put("a")
    for at in (0, 10, 30):
        await stage.drain(handler("h", seen), at=at)
    seen.fail("a")
    await rewind(stage, "h")
    await stage.drain(handler("h", seen), at=40)
    row = await stage.delivery("a", "h")
    assert (row["status"], row["attempts"]) == ("waiting", 1)
    await stage.drain(handler("h", seen), at=50)
    assert await stage.events() == {"a": "delivered"}
    assert len(seen.seen) == 5
