"""An outage is nobody's fault: a handler that says so stands still, and goes on by itself from where it is (R7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import attrs
import pytest
from sqlalchemy import text

from outbox_kernel.kernel import RetrySchedule
from outbox_kernel.kernel.errors import Reject, RetryAfter, Unavailable
from tests.relaying import Recorder, Stage, handler
from tests.serving import all_delivered, has_seen, serving
from tests.waiting import until

AWAY = "payments is unavailable"


@attrs.define(eq=False)
class Shop(Recorder):
    """Needs something that is away until it is told otherwise."""

    is_away: bool = True
    only: str = ""
    """What begins so is what needs it."""
    done: list[str] = attrs.Factory(list)

    async def __call__(self, event: Any) -> None:
        await super().__call__(event)
        if self.is_away and event.what.startswith(self.only):
            raise Unavailable("payments")
        self.done.append(event.what)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    probe_after(monkeypatch, 0.01)


def probe_after(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    schedule = RetrySchedule((seconds,), jitter_share=0)
    monkeypatch.setattr("outbox_kernel.infrastructure.relay.outages.EXPONENTIAL", schedule)


def stands_still(
    stage: Stage, reason: str | None = AWAY, name: str = "shop"
) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        found = await stage.witness.fetchval("SELECT pauses->$1->>'reason' FROM outbox_relays", name)
        return bool(found == reason)

    return holds


async def place_of(stage: Stage, name: str) -> int:
    """The position up to which a subscription has passed, all of it."""
    found: int = await stage.witness.fetchval(
        "SELECT min((SELECT position FROM outbox_progress AS newest WHERE newest.reader = outbox_cursors.reader "
        "ORDER BY number DESC LIMIT 1)) FROM outbox_cursors WHERE subscription = $1",
        name,
    )
    return found


# --- what a handler names ---------------------------------------------------------------------------


async def test_an_outage_charges_nobody_writes_nothing_and_holds_up_no_other_handler(stage: Stage) -> None:
    shop, other, wallet = Shop(), Recorder(), uuid4()
    await stage.put("a", "b", of=wallet)
    relay = stage.relay(handler("shop", shop), handler("other", other))
    await relay.run_until_idle()
    assert (shop.seen, other.seen) == (["a"], ["a", "b"])
    assert relay.paused == {"shop": AWAY}
    assert (await stage.deliveries(), await stage.receipts()) == ({}, [])
    assert await place_of(stage, "shop") == 0
    shop.is_away = False
    await stage.drain(handler("shop", shop), handler("other", other))
    assert (shop.done, other.seen) == (["a", "b"], ["a", "b"])
    assert await stage.events() == {"a": "delivered", "b": "delivered"}


@pytest.mark.usefixtures("quick")
async def test_it_goes_on_by_itself_in_order_from_where_it_is(stage: Stage) -> None:
    """Also with what was committed meanwhile, and no event is done twice."""
    shop, wallets = Shop(), [uuid4() for _ in range(3)]
    for wallet in wallets:
        await stage.put(*(f"{wallets.index(wallet)} {number}" for number in range(4)), of=wallet)
    async with serving(stage.relay(handler("shop", shop), at=None, poll_interval_seconds=0.05)):
        await until(stands_still(stage))
        await stage.put("0 4", of=wallets[0])
        await until(lambda: has_probed(shop, 5))
        assert await stage.deliveries() == {}
        shop.is_away = False
        await until(all_delivered(stage, 13))
        await until(stands_still(stage, None))
    assert len(shop.done) == 13
    for number in range(3):
        mine = [what for what in shop.done if what.startswith(f"{number} ")]
        assert mine == sorted(mine)
    assert await stage.deliveries() == {}


async def has_probed(shop: Shop, times: int) -> bool:
    return len(shop.seen) >= times


@pytest.mark.usefixtures("quick")
async def test_it_probes_with_one_event_at_a_time(stage: Stage) -> None:
    """However many were at work when it began: those are no probes."""
    at_work, most, shop = 0, list[int](), Shop()

    async def act(event: Any) -> None:
        nonlocal at_work
        at_work += 1
        most.append(at_work)
        try:
            await asyncio.sleep(0)
            await shop(event)
        finally:
            at_work -= 1

    for number in range(20):
        await stage.put(str(number), of=uuid4())
    async with serving(stage.relay(handler("shop", act), at=None, concurrency=5)):
        await until(stands_still(stage))
        began = len(most)
        await until(lambda: has_probed(shop, began + 5))
        assert set(most[began:]) == {1}
        shop.is_away = False
        await until(all_delivered(stage, 20))
    assert max(most) > 1


async def test_the_first_probe_is_after_a_second_and_the_next_ones_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K7: by EXPONENTIAL, up to its fifth delay."""
    asked = []

    class Asked:
        @staticmethod
        def delay_after(failures: int) -> float:
            asked.append(failures)
            return 0.01

    monkeypatch.setattr("outbox_kernel.infrastructure.relay.outages.EXPONENTIAL", Asked)
    shop = Shop()
    await stage.put("a")
    async with serving(stage.relay(handler("shop", shop), at=None)):
        await until(lambda: has_probed(shop, 8))
        shop.is_away = False
        await until(all_delivered(stage, 1))
        shop.is_away = True
        known = len(asked)
        await stage.put("b")
        await until(lambda: has_probed(shop, len(shop.done) + known + 1))
    assert asked[:7] == [1, 2, 3, 4, 5, 5, 5]
    assert asked[known] == 1


async def test_it_rests_before_it_probes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is committed meanwhile."""
    probe_after(monkeypatch, 3_600)
    shop, other = Shop(), Recorder()
    await stage.put("a")
    relay = stage.relay(handler("shop", shop), handler("other", other), at=None, poll_interval_seconds=0.05)
    async with serving(relay):
        await until(stands_still(stage))
        for number in range(5):
            await stage.put(str(number))
            await until(lambda: has_seen(other, {str(number)}))  # noqa: B023 - awaited at once
    assert shop.seen == ["a"]


@pytest.mark.usefixtures("quick")
async def test_since_when_and_why_stand_in_the_row_of_the_relay_and_once_in_the_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it goes on; the moment is that of the first."""
    caplog.set_level(logging.INFO, "outbox.relay")
    shop = Shop()
    for number in range(5):
        await stage.put(str(number), of=uuid4())
    async with serving(stage.relay(handler("shop", shop), at=None)):
        await until(stands_still(stage))
        first = await stage.witness.fetchval("SELECT pauses->'shop'->>'since' FROM outbox_relays")
        await until(lambda: has_probed(shop, 20))
        assert await stage.witness.fetchval("SELECT pauses->'shop'->>'since' FROM outbox_relays") == first
        shop.is_away = False
        await until(all_delivered(stage, 5))
    told = [each.getMessage() for each in caplog.records if each.__dict__.get("handler") == "shop"]
    assert [each.partition(":")[0] for each in told[:1]] == [
        "handler shop stands still until what it needs is back"
    ]
    assert len(told) == 2
    assert told[1].startswith("handler shop goes on after ")
    assert "Traceback" not in caplog.text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "answer", [Reject("no"), ValueError("no"), RetryAfter(3600)], ids=lambda each: type(each).__name__
)
async def test_any_answer_to_a_probe_lets_it_go_on(stage: Stage, answer: Exception) -> None:
    """Also one that is charged: what it needs was there to say so."""
    shop = Shop(only="a")
    await stage.put("a", of=uuid4())
    await stage.put("b", of=uuid4())
    async with serving(stage.relay(handler("shop", shop), at=None)):
        await until(stands_still(stage))
        shop.fail("a", answer)
        await until(stands_still(stage, None))
        await until(lambda: is_done(shop, {"b"}))
    assert (await stage.delivery("a", "shop"))["attempts"] == 1


async def is_done(shop: Shop, whats: set[str]) -> bool:
    return set(shop.done) >= whats


async def test_an_answer_to_what_was_begun_before_is_no_answer_to_a_probe(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe_after(monkeypatch, 3_600)
    go, begun, shop = asyncio.Event(), asyncio.Event(), Shop(only="a")

    async def act(event: Any) -> None:
        if event.what == "slow":
            begun.set()
            await go.wait()
        else:
            await begun.wait()
        await shop(event)

    for what in ("slow", "a", "c"):
        await stage.put(what, of=uuid4())
    async with serving(stage.relay(handler("shop", act), at=None, concurrency=2)):
        await until(stands_still(stage))
        go.set()
        await until(lambda: is_done(shop, {"slow"}))
        await until(stands_still(stage))
    assert shop.seen == ["a", "slow"]


@pytest.mark.usefixtures("quick")
async def test_a_delivery_that_meets_an_outage_waits_again_uncharged(stage: Stage) -> None:
    shop = Shop(is_away=False)
    shop.fail("a", ValueError("once"))
    await stage.put("a", "b", of=uuid4())
    await stage.drain(handler("shop", shop, retry=RetrySchedule((0.01,), jitter_share=0)), at=0)
    assert (await stage.delivery("a", "shop"))["attempts"] == 1
    shop.is_away = True
    async with serving(stage.relay(handler("shop", shop), at=None)):
        await stage.witness.execute("UPDATE outbox_deliveries SET available_at = clock_timestamp()")
        await until(stands_still(stage))
        await until(lambda: has_probed(shop, 4))
        await until(lambda: waits(stage))
        assert (await stage.delivery("a", "shop"))["attempts"] == 1
        shop.is_away = False
        await until(all_delivered(stage, 2))
    assert shop.done == ["a", "b"]


async def waits(stage: Stage) -> bool:
    return bool((await stage.delivery("a", "shop"))["status"] == "waiting")


# --- relays that come and go ------------------------------------------------------------------------


async def test_a_relay_that_stops_meanwhile_loses_nothing_and_leaves_no_rows(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R11: what had an answer is not done again, as far as nothing before it is open."""
    probe_after(monkeypatch, 3_600)
    shop, wallets = Shop(only="c"), [uuid4(), uuid4()]
    for what in ("a", "b", "c", "d"):
        await stage.put(what, of=wallets[what == "d"])
    async with serving(stage.relay(handler("shop", shop), at=None, concurrency=1)):
        await until(stands_still(stage))
    assert (await stage.deliveries(), shop.seen) == ({}, ["a", "b", "c"])
    shop.is_away = False
    await stage.drain(handler("shop", shop))
    assert shop.done == ["a", "b", "c", "d"]
    assert set((await stage.events()).values()) == {"delivered"}


async def test_what_was_done_before_is_not_done_again_by_the_next_run(stage: Stage) -> None:
    """R7: `run_until_idle()` leaves what stands still for the next, with a place as far as it came."""
    shop = Shop(only="c")
    for what in ("a", "b", "c", "d"):
        await stage.put(what, of=uuid4())
    h = handler("shop", shop)
    await stage.drain(h, concurrency=1)
    assert (shop.seen, await stage.deliveries()) == (["a", "b", "c"], {})
    shop.is_away = False
    await stage.drain(h, concurrency=1)
    assert shop.seen == ["a", "b", "c", "c", "d"]


async def test_what_failed_before_keeps_its_attempts_and_holds_back_its_aggregate(stage: Stage) -> None:
    """R4, R7: with the place up to which the others came."""
    shop, wallet = Shop(only="c"), uuid4()
    shop.fail("a", ValueError("once"))
    await stage.put("a", "b", of=wallet)
    await stage.put("c", of=uuid4())
    await stage.put("d", of=wallet)
    h = handler("shop", shop)
    await stage.drain(h, concurrency=1)
    assert await stage.deliveries() == {("a", "shop"): "waiting", ("b", "shop"): "waiting"}
    assert (await stage.delivery("a", "shop"))["attempts"] == 1
    shop.is_away = False
    await stage.drain(h, concurrency=1)
    await stage.drain(h, concurrency=1, at=10)
    assert shop.done == ["c", "a", "b", "d"]


@pytest.mark.usefixtures("quick")
async def test_another_relay_takes_over_what_stands_still(stage: Stage) -> None:
    """R1: in order, though the second has come since."""
    shop, wallets = Shop(), [uuid4() for _ in range(8)]
    for number, wallet in enumerate(wallets):
        await stage.put(f"{number} a", f"{number} b", of=wallet)
    async with serving(stage.relay(handler("shop", shop), at=None, lease_seconds=3.0)):
        await until(stands_still(stage))
        async with serving(stage.relay(handler("shop", shop), at=None, lease_seconds=3.0)):
            await until(lambda: owners(stage, 2))
            assert await stage.deliveries() == {}
            shop.is_away = False
            await until(all_delivered(stage, 16))
    for number in range(8):
        seen = [what for what in shop.done if what.startswith(f"{number} ")]
        assert list(dict.fromkeys(seen)) == [f"{number} a", f"{number} b"]


async def owners(stage: Stage, count: int) -> bool:
    return len([each for each in await stage.owners("shop") if each is not None]) == count


# --- the outbox's own database ----------------------------------------------------------------------

END_ITSELF = "SELECT pg_terminate_backend(pg_backend_pid())"
RACE_LOST = "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = 'serialization_failure'; END $$"
FULL = "DO $$ BEGIN RAISE EXCEPTION 'sorry, too many clients' USING ERRCODE = 'too_many_connections'; END $$"


@attrs.define(eq=False)
class Clerk(Shop):
    """Has trouble with the database while that is asked for."""

    stage: Any = None
    trouble: str = ""

    async def __call__(self, event: Any) -> None:
        await Recorder.__call__(self, event)
        async with self.stage.uow() as uow:
            if self.is_away:
                await uow.session.execute(text(self.trouble))
            await uow.session.execute(
                text("INSERT INTO bank_journal (line) VALUES (:line)"), {"line": event.what}
            )
            await uow.commit()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (END_ITSELF, "was lost"),
        ("SET TRANSACTION READ ONLY", "read-only"),
        (FULL, "too many clients"),
        (RACE_LOST, "serialization failure"),
    ],
    ids=["its session was ended", "it takes no writes", "it is full", "a race was lost"],
)
async def test_what_the_outboxs_own_database_does_is_charged_to_nobody(
    stage: Stage, caplog: pytest.LogCaptureFixture, trouble: str, told: str
) -> None:
    clerk = Clerk(stage=stage, trouble=trouble)
    await stage.put("a", "b", of=uuid4())
    async with serving(stage.relay(handler("shop", clerk), at=None)):
        await until(lambda: has_reason(stage, told))
        await until(lambda: has_probed(clerk, 8))
        assert await stage.deliveries() == {}
        clerk.is_away = False
        await until(all_delivered(stage, 2))
    assert await stage.journal() == ["a", "b"]
    assert caplog.text.count("stands still") == 1


async def has_reason(stage: Stage, told: str) -> bool:
    found = await stage.witness.fetchval("SELECT pauses->'shop'->>'reason' FROM outbox_relays")
    return found is not None and told in found


async def test_a_race_that_is_lost_once_is_run_again_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing stands still: the next run may well win."""
    probe_after(monkeypatch, 3_600)
    clerk = Clerk(stage=stage, trouble=RACE_LOST)

    async def act(event: Any) -> None:
        clerk.is_away = len(clerk.seen) < 2
        await clerk(event)

    await stage.put("a")
    relay = stage.relay(handler("shop", act))
    await relay.run_until_idle()
    assert (clerk.seen, relay.paused) == (["a"] * 3, {})
    assert (await stage.events(), await stage.deliveries()) == ({"a": "delivered"}, {})


async def test_an_effect_whose_answer_was_lost_is_there_once(stage: Stage) -> None:
    """R6: the commit arrived, and what was heard of it is that the session was ended."""
    seen = Recorder()

    async def act(event: Any) -> None:
        await seen(event)
        await stage.enter(event.what)
        if len(seen.seen) == 1:
            raise Unavailable("payments")

    await stage.put("a")
    await stage.drain(handler("shop", act))
    assert (await stage.journal(), await stage.events()) == (["a"], {"a": "delivered"})


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError("the crane's own"), OSError("disk"), TimeoutError()],
    ids=lambda each: type(each).__name__,
)
async def test_an_error_of_something_else_is_the_handlers_own(stage: Stage, error: Exception) -> None:
    """Only what a handler names is an outage of what it needs."""
    await stage.put("a")
    await stage.drain(handler("shop", Recorder().fail("a", error)))
    assert (await stage.delivery("a", "shop"))["attempts"] == 1


async def test_a_reject_for_an_outage_is_a_reject(stage: Stage) -> None:
    """K5: it says what it means."""
    error = Reject("not without payments")
    error.__cause__ = Unavailable("payments")
    await stage.put("a")
    await stage.drain(handler("shop", Recorder().fail("a", error)))
    assert await stage.events() == {"a": "dead"}
