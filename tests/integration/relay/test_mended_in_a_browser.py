"""By its pages alone somebody finds why an event is not delivered, has it run again, and sees it go (O3, R7)."""

from __future__ import annotations

from uuid import uuid4

from outbox_kernel.infrastructure.dashboard import Dashboard
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import Reject
from tests.relaying import Recorder, Stage, handler
from tests.visiting import Page, Visitor, visiting


async def opened(visitor: Visitor, page: Page, beginning: str) -> Page:
    """Follow the first link of a page that begins so."""
    return await visitor.get(next(link for link in page.links if link.startswith(beginning)))


async def test_why_an_event_stands_is_found_and_mended_from_page_to_page(stage: Stage) -> None:
    act = Recorder().fail("a", Reject("the bank answers 422"))
    await stage.put("a", "b", of=uuid4())
    await stage.drain(handler("billing.Charge", act))
    async with visiting(Dashboard(Settings(contexts=()), stage.engine)) as visitor:
        page = await visitor.get("/")
        assert "billing.Charge · 1 dead letter" in page.text
        page = await opened(visitor, page, "/dead-letters/of")
        story = await opened(visitor, page, "/events/")
        assert "the bank answers 422" in story.text
        assert "you: mend the cause and retry it, or skip it" in story.text
        # Who comes from the event that waits is led there as well.
        history = await opened(visitor, story, "/aggregate")
        waiting = await opened(visitor, history, "/events/")
        assert "is dead for this handler" in waiting.text
        story = await opened(visitor, waiting, "/events/")
        assert "the bank answers 422" in story.text
        story = await visitor.did(story.form("/do/retry", handler="billing.Charge"))
        assert "1 delivery retried: a relay runs it at its turn." in story.text
        await stage.drain(handler("billing.Charge", act))
        assert act.seen == ["a", "a", "b"]
        assert "billing.Charge · " not in (await visitor.get("/")).text
    assert await stage.events() == {"a": "delivered", "b": "delivered"}
