"""Whoever may write events writes what nobody of ours would: others' events are delivered all the same (R9, R11)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from uuid import UUID, uuid4

import asyncpg
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_kernel.infrastructure.brokers import Outlet, Publisher
from outbox_kernel.infrastructure.brokers.memory import MemoryBroker
from outbox_kernel.infrastructure.cli import main
from outbox_kernel.infrastructure.operations import Desk
from outbox_kernel.infrastructure.relay import OutboxRelay
from outbox_kernel.kernel.handlers import HandlerRegistration
from outbox_kernel.kernel.stored import StoredEvent
from tests import servers
from tests.commands import ROOT
from tests.hostile.conftest import staged
from tests.hostile.onlookers import browse, let_go, look, mend
from tests.hostile.rows import REFUSED, TOGETHER, WITHHELD, WRITABLE, Bad, of_columns
from tests.posting import BANK, TOPOLOGY
from tests.relaying import Recorder, Stage, handler

WORK_SECONDS_MAX = 20
PAGE = (ROOT / "docs" / "reference" / "outbox-table.md").read_text()
HANDLERS = ("noted", "every", "bank")


@attrs.define(eq=False)
class Readers:
    """A handler of one type, one of all, and a publisher."""

    noted: Recorder = attrs.Factory(Recorder)
    every: list[str] = attrs.Factory(list)
    broker: MemoryBroker = attrs.Factory(MemoryBroker)

    def carried(self) -> tuple[HandlerRegistration, ...]:
        every = self.every

        class Every:
            async def handle(self, event: StoredEvent) -> None:
                every.append(str(event.payload.get("what")))

        return (
            handler("noted", self.noted),
            HandlerRegistration("every", Every, (), patterns=("*",)),
        )

    def publishers(self) -> dict[Publisher, Outlet]:
        return {BANK: self.broker.outlet(BANK, TOPOLOGY)}

    def have_had(self, *whats: str, beside: str) -> None:
        """All three have had these, in this order, and once one of another aggregate."""
        published = [json.loads(each.body).get("what") for each in self.broker.queues.get("notes", [])]
        for had in (self.noted.seen, self.every, published):
            assert [each for each in had if each in whats] == [*whats]
            assert had.count(beside) == 1


PASSED_UNREAD = """
SELECT event.position, jsonb_typeof(payload), occurred_at::text FROM outbox_events AS event
WHERE event_id = ANY ($1::uuid[]) AND source IS NULL AND (not_before IS NULL OR not_before <= now())
  AND (jsonb_typeof(payload) <> 'object' OR occurred_at NOT BETWEEN '0001-01-02' AND '9999-12-30')
  AND NOT EXISTS (
    SELECT FROM outbox_deliveries AS delivery WHERE delivery.event_id = event.event_id
      AND delivery.handler = 'every' AND delivery.status IN ('dead', 'waiting'))
"""


@pytest.mark.parametrize("columns", TOGETHER, ids=", ".join)
async def test_good_events_amid_bad_ones_are_delivered_and_all_who_look_are_answered(
    stage: Stage, columns: tuple[str, ...]
) -> None:
    await surrounded(stage, of_columns(columns))


async def surrounded(stage: Stage, rows: Sequence[Bad]) -> None:
    """Write these between good ones, and see that nobody but they notices; whatever is done about them, too."""
    readers, wallet, desk = Readers(), uuid4(), Desk(stage.witness)
    goods = [str(number) for number in range(len(rows) + 1)]
    relay = stage.relay(*readers.carried(), publishers=readers.publishers())
    await idle(relay)
    await stage.put(goods[0], "beside", of=wallet)
    bad: list[UUID] = []
    for row, good in zip(rows, goods[1:], strict=True):
        # One that is there already is not written again.
        bad += [each[0] for each in await stage.witness.fetch(row.insert())]
        await stage.put(good, of=wallet)
    # What nobody has come to yet is looked for in other ways.
    await look(desk, bad, HANDLERS)
    await idle(relay)
    readers.have_had(*goods, beside="beside")
    # What nobody can read is passed by nobody: it is dead, or stands behind what is.
    assert await stage.witness.fetch(PASSED_UNREAD, bad) == []
    await look(desk, bad, HANDLERS)
    await browse(stage.engine, bad, HANDLERS)
    await mend(desk, HANDLERS)
    await stage.put("after", of=wallet)
    await idle(relay)
    await let_go(desk, HANDLERS)
    await stage.put("last", of=wallet)
    await idle(relay)
    readers.have_had(*goods, "after", "last", beside="beside")
    await look(
        desk, [row[0] for row in await stage.witness.fetch("SELECT event_id FROM outbox_events")], HANDLERS
    )


async def idle(relay: OutboxRelay) -> None:
    async with asyncio.timeout(WORK_SECONDS_MAX):
        await relay.run_until_idle()


@pytest.fixture
async def writer(stage: Stage) -> AsyncIterator[str]:
    """A role that may do what the reference grants whoever writes events."""
    [columns] = re.findall(r"GRANT INSERT (\(.+?\)) ON outbox_events TO app", PAGE)
    name = f"outbox_writer_{uuid4().hex}"
    await stage.witness.execute(f"CREATE ROLE {name}; GRANT INSERT {columns} ON outbox_events TO {name}")
    yield name
    await stage.witness.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_what_is_the_servers_alone_no_writer_has_a_right_to(stage: Stage, writer: str) -> None:
    """By a position or a transaction of its own choice an event would hide, or hold back what others purge."""
    for columns in (*WITHHELD.values(), *REFUSED.values()):
        with pytest.raises(
            asyncpg.InsufficientPrivilegeError, match="permission denied for table outbox_events"
        ):
            await written_by(stage, writer, columns)
    for columns in WRITABLE.values():
        await written_by(stage, writer, columns)


@pytest.mark.parametrize("name", REFUSED)
async def test_what_orders_and_dates_events_is_refused_to_everybody_where_nobody_could_count_with_it(
    stage: Stage, name: str
) -> None:
    """R9: also to whoever was granted to insert without a list of columns."""
    with pytest.raises(asyncpg.CheckViolationError, match=f"outbox_events_{name.partition(' ')[0]}_check"):
        await stage.witness.execute(Bad(REFUSED[name]).insert())


@pytest.mark.parametrize("name", WITHHELD)
async def test_what_is_the_servers_alone_harms_nobody_else_if_somebody_writes_it(
    stage: Stage, name: str
) -> None:
    """R9: a relay that met a transaction yet to come read it again and again."""
    await surrounded(stage, [Bad(WITHHELD[name])])


async def written_by(stage: Stage, writer: str, columns: dict[str, str]) -> None:
    transaction = stage.witness.transaction()
    await transaction.start()
    try:
        await stage.witness.execute(f"SET LOCAL ROLE {writer}")
        await stage.witness.execute(Bad(columns).insert(returning=False))
    finally:
        await transaction.rollback()


def test_every_command_tells_of_all_of_it(
    bank_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fill() -> list[UUID]:
        async with staged(bank_url) as stage:
            readers = Readers()
            relay = stage.relay(*readers.carried(), publishers=readers.publishers())
            await idle(relay)
            found = [await stage.witness.fetchval(Bad(columns).insert()) for columns in WRITABLE.values()]
            await idle(relay)
            return [each for each in found if each is not None]

    event_ids = servers.run(fill())
    for name in ("OUTBOX_SCHEMA", "OUTBOX_CONTEXTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABASE_URL", bank_url)
    asked = [
        ["events", "--limit", "1000"],
        ["failed", "--limit", "1000"],
        ["status"],
        *(["show", str(each)] for each in event_ids),
    ]
    for words in asked:
        for form in ([], ["--json"]):
            with pytest.raises(SystemExit) as ended:
                main([*words, *form])
            told = capsys.readouterr()
            assert (ended.value.code, told.err) == (0, ""), words
            assert not any(each in told.out for each in "\x1b\x07\u202e"), words
            if form:
                json.loads(told.out)


# --- many at once, by chance ---------------------------------------------------------------------------

VALUES = {
    column: [columns[column] for columns in WRITABLE.values() if column in columns]
    for column in dict.fromkeys(column for columns in WRITABLE.values() for column in columns)
}
TEXT = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
NAMES = st.sampled_from(
    ["what", "$sealed", "*", "traceparent", "correlation_id", "causation_id", "key", "text"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=TEXT, max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet=TEXT, max_size=5) | NAMES, inner, max_size=4)
    ),
    max_leaves=8,
)


@st.composite
def rows(draw: st.DrawFn) -> Bad:
    """A row that is odd in several columns, by what is tried above alone, or by chance."""
    columns = {
        name: draw(st.sampled_from(VALUES[name]))
        for name in draw(st.sets(st.sampled_from([*VALUES]), max_size=4))
    }
    for name in draw(st.sets(st.sampled_from(["payload", "headers", "sensitive"]))):
        columns[name] = quoted(json.dumps(draw(JSON)))
    return Bad(columns)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        yield runner


@settings(max_examples=max(2, settings().max_examples // 100))
@given(written=st.lists(rows(), min_size=5, max_size=15))
def test_whatever_is_written_stops_nobody(bank_url: str, runner: asyncio.Runner, written: list[Bad]) -> None:
    async def history() -> None:
        async with staged(bank_url) as stage:
            await surrounded(stage, written)

    runner.run(history())


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
