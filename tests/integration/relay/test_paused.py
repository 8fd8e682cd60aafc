"""A relay that was stopped past its lease writes nothing stale when it resumes (R3)."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.relay_process import relay_process
from tests.relaying import Stage, handler
from tests.waiting import until

READERS = "SELECT DISTINCT reader FROM outbox_cursors"
PROGRESS = "SELECT * FROM outbox_progress WHERE reader = ANY ($1) ORDER BY reader, number"
DELIVERIES = "SELECT * FROM outbox_deliveries"
RECEIPTS = "SELECT * FROM outbox_receipts"


async def is_left_aside(stage: Stage) -> bool:
    return list((await stage.deliveries()).values()) == ["leased"]


@pytest.mark.parametrize(
    ("what", "has_delivery"),
    [("wait", False), ("wait commit", False), ("wait", True), ("wait fail", True), ("wait commit", True)],
)
async def test_a_stopped_process_writes_nothing_stale_when_it_goes_on(
    stage: Stage, bank_url: str, what: str, has_delivery: bool
) -> None:
    """R3: neither progress nor a delivery nor a handler's unit of work; then it works on under its next lease."""

    async def act(event: Any) -> None:
        await stage.enter(f"another: {event.what}")

    await stage.put(what)
    async with relay_process(bank_url, "h") as relay:
        await relay.says(f"h begins {what}")
        if has_delivery:
            await until(lambda: is_left_aside(stage))
        readers = [row["reader"] for row in await stage.witness.fetch(READERS)]
        relay.process.send_signal(signal.SIGSTOP)
        # By the server's clock its lease has run out long before.
        assert (await stage.take_over(at=0))[1] == has_delivery
        await stage.drain(handler("h", act))
        before = [await stage.witness.fetch(PROGRESS, readers)]
        before += [await stage.witness.fetch(each) for each in (DELIVERIES, RECEIPTS)]
        assert await stage.events() == {what: "delivered"}
        relay.let_go_on()
        relay.process.send_signal(signal.SIGCONT)
        await relay.logs("reads its cursors anew")
        await stage.put("commit")
        await relay.says("h begins commit")
        relay.process.send_signal(signal.SIGTERM)
        assert await relay.ended() == 0
    after = [await stage.witness.fetch(PROGRESS, readers)]
    after += [await stage.witness.fetch(DELIVERIES), (await stage.witness.fetch(RECEIPTS))[:1]]
    # What was written of readers that nobody has any more, it may have purged by then.
    assert after[0] in ([], before[0])
    assert after[1:] == before[1:]
    assert await stage.journal() == [f"another: {what}", "h: commit"]
