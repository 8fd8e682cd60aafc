"""A relay within a program that serves something else: how its end is told (R11)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest

from outbox_kernel.infrastructure.hosting import Hosted

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.relay import OutboxRelay


@attrs.define(eq=False)
class Relay:
    """Begins at once, and ends as a test says."""

    error: Exception | None = None
    is_slow: bool = False
    subscribed: asyncio.Event = attrs.Factory(asyncio.Event)
    ending: asyncio.Event = attrs.Factory(asyncio.Event)
    has_ended: bool = False

    async def run(self) -> None:
        self.subscribed.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ending.set()
            try:
                if self.is_slow:
                    await asyncio.Event().wait()
            finally:
                self.has_ended = True
            if self.error is not None:
                raise self.error from None


def hosted(relay: Relay) -> Hosted:
    return Hosted(cast("OutboxRelay", relay))


async def test_what_a_relay_raises_while_it_stops_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """R11: its host has ended well all the same."""
    relay = Relay(error=RuntimeError("could not give back"))
    async with hosted(relay).serving():
        pass
    [record] = caplog.records
    assert record.getMessage() == "the relay in this process has not ended well: others take over its work"
    assert record.exc_info is not None
    assert record.exc_info[1] is relay.error


async def test_a_relay_that_ends_well_with_its_host_is_not_worth_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R11."""
    relay: Any = Relay()
    async with hosted(relay).serving():
        pass
    assert relay.has_ended
    assert caplog.records == []


async def test_a_second_cancellation_of_its_host_ends_a_relay_at_once_and_leaves_no_task() -> None:
    """R11."""
    relay = Relay(is_slow=True)
    host = hosted(relay)
    await host.begin()
    ending = asyncio.create_task(host.end())
    await relay.ending.wait()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert relay.has_ended
