"""O6: what is sealed comes back as it was, at its place alone, until its key is destroyed or lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outbox_kernel.errors import FieldNotOpened
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.outbox.sealing.boxes import boxes_in, put_together
from outbox_kernel.infrastructure.outbox.sealing.keys import StoredKey, SubjectKey
from outbox_kernel.infrastructure.outbox.sealing.scrubbing import scrubbed, texts_in
from outbox_kernel.infrastructure.outbox.sealing.writing import Sealing
from outbox_kernel.kernel import DomainEvent, event, sensitive
from tests.unit.sealing.test_sealing import Row

MASTERS = [MasterKeys.parse(new_master_key(name)) for name in ("one", "two", "three")]
ALL = MasterKeys({name: key for each in MASTERS for name, key in each.by_id.items()})
FIELDS = {"first": "one", "second": "two", "third": "one"}
"""Each sealed field, and the field that says whose it is."""


@event("property.sealed")
class Sealed(DomainEvent):
    one: str
    two: int
    first: Any = sensitive(subject="one", forgotten="gone")
    second: Any = sensitive(subject="two", forgotten=None)
    third: Any = sensitive(subject="one", forgotten=[1, {"a": None}])
    plain: Any = None


FORGOTTEN = {"first": "gone", "second": None, "third": [1, {"a": None}]}
# As PostgreSQL's jsonb holds it.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
rows = st.builds(
    lambda event_id, one, two, told: Row(
        event_id, "property.sealed", 1, json.dumps({"one": one, "two": two, **told}, ensure_ascii=False)
    ),
    st.uuids(),
    st.sampled_from(["ada", "bo", "c" * 500, "Ünïcödé \u2028"]),
    st.integers(1, 3),
    st.fixed_dictionaries({"plain": values, **dict.fromkeys(FIELDS, values)}),
)


class Table:
    """The table of keys: one for each subject, until it is destroyed."""

    def __init__(self, masters: MasterKeys) -> None:
        self.masters = masters
        self.keys: dict[str, StoredKey] = {}

    def seal(self, row: Row) -> Row:
        sealing = Sealing([row], self.masters)
        asked = sealing.asked()
        for subject, key_id, wrapped in zip(asked["subjects"], asked["ids"], asked["wrapped"], strict=True):
            self.keys.setdefault(subject, StoredKey(key_id, subject, asked["master_key"], wrapped))
        found = [self.keys[subject] for subject in asked["subjects"]]
        names = ("id", "subject", "master_key", "wrapped")
        sealing.take(json.dumps([{name: str(getattr(each, name)) for name in names} for each in found]))
        [sealed] = sealing.sealed()
        return sealed

    def open(self, sealed: Row, *, forgotten: str | None = None) -> dict[str, Any]:
        at_hand = {str(each.id): SubjectKey.of(each, self.masters) for each in self.keys.values()}
        for stored in self.keys.values():
            if stored.subject == forgotten:
                at_hand[str(stored.id)].forget()
        if not boxes_in(sealed.payload):
            told: dict[str, Any] = json.loads(sealed.payload)
            return told
        text, _ = put_together(sealed.payload, at_hand, sealed.event_type, sealed.event_id)
        opened: dict[str, Any] = json.loads(text)
        return opened


def subject_of(row: Row, field: str) -> str:
    return str(json.loads(row.payload)[FIELDS[field]])


@given(rows, st.lists(st.sampled_from(MASTERS), max_size=3))
def test_it_comes_back_as_it_was_however_often_its_keys_are_rewrapped(
    row: Row, rotations: list[MasterKeys]
) -> None:
    table = Table(MASTERS[0])
    sealed, told = table.seal(row), json.loads(row.payload)
    assert table.open(sealed) == told
    for active in rotations:
        table.masters = MasterKeys({active.active: ALL.by_id[active.active], **ALL.by_id})
        assert table.masters.active == active.active
        for subject, each in table.keys.items():
            table.keys[subject] = StoredKey(each.id, subject, active.active, each.rewrapped(table.masters))
        table.masters = active
        assert table.open(sealed) == told
        assert boxes_in(table.seal(row).payload) == boxes_in(sealed.payload)


@given(rows)
def test_nothing_of_a_sealed_value_is_in_the_row(row: Row) -> None:
    sealed = Table(MASTERS[0]).seal(row)
    stored = json.loads(sealed.payload)
    there = {name for name in FIELDS if json.loads(row.payload)[name] is not None}
    assert {*stored} == {"one", "two", "plain", *(FIELDS.keys() - there), *(["$sealed"] if there else [])}
    assert {*stored.get("$sealed", {})} == there
    for name, box in stored.get("$sealed", {}).items():
        assert {*box} <= {"key", "text", "forgotten"}
        assert box.get("forgotten") == FORGOTTEN[name]


@given(rows, rows, st.sampled_from(sorted(FIELDS)), st.sampled_from(sorted(FIELDS)))
def test_a_text_that_is_moved_opens_nowhere(row: Row, other: Row, at: str, of: str) -> None:
    """Between fields of one event, between events, and between subjects."""
    assume(row.event_id != other.event_id)
    table = Table(MASTERS[0])
    sealed, its = json.loads(table.seal(row).payload), json.loads(table.seal(other).payload)
    for source in (sealed, its):
        if (
            at in sealed.get("$sealed", {})
            and of in source.get("$sealed", {})
            and (source is its or at != of)
        ):
            moved = {**sealed, "$sealed": {**sealed["$sealed"], at: source["$sealed"][of]}}
            with pytest.raises(FieldNotOpened):
                table.open(row._replace(payload=json.dumps(moved)))


@given(rows, st.sampled_from(["ada", "bo", "1", "2"]))
def test_what_is_forgotten_takes_nothing_else_along(row: Row, forgotten: str) -> None:
    table, told = Table(MASTERS[0]), json.loads(row.payload)
    opened = table.open(table.seal(row), forgotten=forgotten)
    expected = {
        name: FORGOTTEN[name] if subject_of(row, name) == forgotten and told[name] is not None else told[name]
        for name in FIELDS
    }
    assert opened == {**told, **expected}


@given(values, st.data())
def test_no_long_piece_of_a_value_is_left_of_an_error(value: Any, data: st.DataObject) -> None:
    """K11: wherever it is cut, and whatever is around it."""
    secrets = texts_in([value])
    assume(secrets)
    secret = data.draw(st.sampled_from(secrets))
    start = data.draw(st.integers(0, max(0, len(secret) - 8)))
    end = data.draw(st.integers(min(len(secret), start + 8), len(secret)))
    around = data.draw(st.tuples(texts, texts))
    shown = scrubbed(f"{around[0]}{secret[start:end]}{around[1]}", secrets)
    lowered = shown.lower()
    for each in secrets:
        assert each not in shown
        for at in range(len(each) - 7):
            assert each[at : at + 8].lower() not in lowered or "***" in each
