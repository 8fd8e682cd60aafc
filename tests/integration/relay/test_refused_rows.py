"""What PostgreSQL refuses for ever is named, and the rest of its batch is stored (T3, R12)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outbox_kernel.infrastructure.consumer.storing import Storage
from tests.relaying import Recorder, Stage
from tests.streams import Stream, handle, of

# As an operator's own constraint may: of class 23 the one, of class 22 the other.
CHECKS = {
    'violates check constraint "guilty"': "payload->>'what' <> 'c'",
    "division by zero": "1 / CASE payload->>'what' WHEN 'c' THEN 0 ELSE 1 END = 1",
}


@pytest.fixture(params=CHECKS)
async def reason(request: pytest.FixtureRequest, stage: Stage) -> AsyncIterator[str]:
    """Why the server does not take `c`, as it says."""
    check = CHECKS[request.param]
    await stage.witness.execute(f"ALTER TABLE outbox_events ADD CONSTRAINT guilty CHECK ({check})")
    yield request.param
    await stage.witness.execute("ALTER TABLE outbox_events DROP CONSTRAINT guilty")


TRIGGER = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN RAISE EXCEPTION 'no such letter'; END $$;
CREATE TRIGGER guilty BEFORE INSERT ON outbox_events FOR EACH ROW WHEN (NEW.payload->>'what' = 'c')
  EXECUTE FUNCTION refuse();
"""


async def test_what_an_operators_trigger_refuses_holds_up_no_other(stage: Stage) -> None:
    """T3."""
    stream = Stream()
    await stage.witness.execute(TRIGGER)
    try:
        stored = await Storage("audit").store(stage.line(), stream["bcd"])
    finally:
        await stage.witness.execute("DROP FUNCTION refuse CASCADE")
    assert list(stored.refused) == [stream.ids["c"]]
    assert "no such letter" in stored.refused[stream.ids["c"]]
    assert set(await stage.events()) == {"b", "d"}


async def test_only_the_guilty_one_is_refused(stage: Stage, reason: str) -> None:
    """T3: with what the server says of it, and nothing of what it holds."""
    audit, stream = Recorder(), Stream()
    await handle(stage, of("audit", audit))
    stored = await Storage("audit", now=stage.start).store(stage.line(), stream["abcde"])
    assert list(stored.refused) == [stream.ids["c"]]
    assert reason in stored.refused[stream.ids["c"]]
    assert str(stream.ids["c"]) not in stored.refused[stream.ids["c"]]
    assert set(stored.turns) == {("audit's", f"bank.wallet:{stream['a'][0].aggregate_id}")}
    await handle(stage, of("audit", audit))
    assert audit.seen == ["a", "b", "d", "e"]


async def test_what_is_no_rows_fault_is_raised(stage: Stage) -> None:
    """T3, R12: a database that takes nothing for a while buries nobody."""
    await stage.witness.execute("ALTER TABLE outbox_events RENAME TO elsewhere")
    try:
        with pytest.raises(Exception, match="outbox_events"):
            await Storage("audit").store(stage.line(), Stream()["ab"])
    finally:
        await stage.witness.execute("ALTER TABLE elsewhere RENAME TO outbox_events")
