"""What an operator says of a handler holds under its next name, and of its former one (R2, R6, R17)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.operations import Desk, Selection
from outbox_kernel.infrastructure.operations.mending import (
    HalfDone,
    choose_for_retry,
    choose_for_skip,
    retry,
    skip,
)
from outbox_kernel.infrastructure.operations.replaying import replay, rewind
from outbox_kernel.infrastructure.relay.subscription import Renaming
from outbox_kernel.kernel import Reject
from outbox_kernel.kernel.handlers import HandlerRegistration
from tests.relaying import Act, Recorder, Stage, handler


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


@pytest.mark.usefixtures("_unmoved")
async def test_an_effect_of_the_former_name_does_not_happen_again_unless_that_is_said(stage: Stage) -> None:
    """R6, R17: its receipt has yet to be moved, and is met."""

    async def act(event: Any) -> None:
        await stage.enter(event.what)

    await stage.put("a")
    await stage.drain(handler("former", act))
    await stage.drain(renamed(act))
    await replay(Desk(stage.witness, now=stage.at(1)), "now", event_id=(await stage.event("a"))["event_id"])
    await stage.drain(renamed(act), at=1)
    assert await stage.journal() == ["a"]


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


# --- what is skipped, or half done, while its receipts are yet to be moved ------------------------------------


async def skip_of_former(stage: Stage, what: str) -> None:
    desk = Desk(stage.witness)
    meant = Selection((await stage.event(what))["event_id"], "former")
    assert (await skip(desk, await choose_for_skip(desk, meant))).changed == 1


@pytest.mark.usefixtures("_unmoved")
async def test_what_was_skipped_far_ahead_under_the_former_name_is_not_handled(stage: Stage) -> None:
    """R2, R4: its delivery waits for its turn, and its receipt says so under the new name, too."""
    seen = Recorder()
    await stage.drain(handler("former", seen))
    await stage.put("a", "b", "c")
    await skip_of_former(stage, "c")
    await stage.drain(renamed(seen), from_beginning=False, batch_size_max=1)
    assert seen.seen == ["a", "b"]
    assert await stage.deliveries() == {("c", "now"): "skipped"}
    assert ("c", "now", "skipped") in await stage.receipts()


@pytest.mark.usefixtures("_unmoved")
async def test_what_was_skipped_under_the_former_name_is_not_handled_when_it_is_read_again(
    stage: Stage,
) -> None:
    """R2, R17."""
    seen, wallet = Recorder().fail("b", Reject("never")), uuid4()
    await stage.put("a", "b", "c", of=wallet)
    await stage.drain(handler("former", seen))
    await skip_of_former(stage, "b")
    await stage.drain(handler("former", seen))
    await stage.rewind()
    await stage.drain(renamed(seen))
    assert seen.seen == ["a", "b", "c", "a", "c"]
    assert (await stage.deliveries())["b", "now"] == "skipped"


@pytest.mark.usefixtures("_unmoved")
async def test_what_let_later_ones_pass_under_the_former_name_is_tried_again(stage: Stage) -> None:
    """R2, R17: the receipt that kept a late run from its effect keeps no other."""
    errors = [Reject("not yet")]

    async def act(event: Any) -> None:
        if errors:
            raise errors.pop()
        await stage.enter(event.what)

    await stage.put("a")
    await stage.drain(handler("former", act, on_dead="continue"))
    assert await stage.receipts() == [("a", "former", "skipped")]
    await stage.rewind()
    await stage.drain(renamed(act, on_dead="continue"))
    assert await stage.journal() == ["a"]
    assert await stage.deliveries() == {}


@pytest.mark.usefixtures("_unmoved")
async def test_what_was_left_half_done_under_the_former_name_stays_so(stage: Stage) -> None:
    """R2, R6: its first effect is known by its receipt."""

    async def act(_: Any) -> None:
        await stage.enter("first")
        await stage.enter("second")

    await stage.put("a")
    await stage.drain(handler("former", act))
    await stage.drain(renamed(act))
    desk = Desk(stage.witness)
    with pytest.raises(HalfDone):
        await retry(desk, await choose_for_retry(desk, Selection(handler="now")))
    assert await stage.deliveries() == {("a", "now"): "dead"}
