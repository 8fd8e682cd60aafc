"""Sealed payloads: each text opens with its key at its place, and nowhere else (O6)."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

from outbox_kernel.errors import ConcurrencyError, FieldNotOpened, MasterKeyUnfit, UnserializableEvent
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.outbox.sealing.boxes import boxes_in, put_together
from outbox_kernel.infrastructure.outbox.sealing.ciphers import Cipher, NotOpened
from outbox_kernel.infrastructure.outbox.sealing.keys import StoredKey, SubjectKey, new_key
from outbox_kernel.infrastructure.outbox.sealing.writing import Sealing, asks
from outbox_kernel.kernel import DomainEvent, event, sensitive

OLD, NEW = (MasterKeys.parse(new_master_key(name)) for name in ("old", "new"))
BOTH = MasterKeys({**NEW.by_id, **OLD.by_id})


@event("sealing.told")
class Told(DomainEvent):
    who: str
    whom: str
    what: str | None = sensitive(subject="who")
    where: str = sensitive(subject="whom", forgotten="nowhere")
    how: dict[str, Any] = sensitive(subject="who", forgotten={})


class Row(NamedTuple):
    event_id: UUID
    event_type: str
    event_version: int
    payload: str


def row(event_id: UUID | None = None, **fields: Any) -> Row:
    told = {"who": "ada", "whom": "bo", "what": "this", "where": "here", "how": {"b": 1, "a": [None, "é"]}}
    return Row(event_id or uuid4(), "sealing.told", 1, json.dumps({**told, **fields}))


class Keys:
    """The table of keys, in memory."""

    def __init__(self, masters: MasterKeys = OLD) -> None:
        self.masters = masters
        self.stored: dict[str, StoredKey] = {}

    def seal(self, *rows: Row) -> list[Row]:
        sealing = Sealing(rows, self.masters)
        sealing.take(self.answer(sealing.asked()))
        return sealing.sealed()

    def answer(self, asked: dict[str, Any]) -> str:
        columns = zip(asked["subjects"], asked["ids"], asked["wrapped"], strict=True)
        for subject, key_id, wrapped in columns:
            self.stored.setdefault(subject, StoredKey(key_id, subject, asked["master_key"], wrapped))
        found = [self.stored[subject] for subject in asked["subjects"]]
        return json.dumps(
            [
                {
                    "subject": each.subject,
                    "id": str(each.id),
                    "master_key": each.master_key,
                    "wrapped": each.wrapped,
                }
                for each in found
            ]
        )

    def at_hand(self, masters: MasterKeys | None = None) -> dict[str, SubjectKey]:
        return {str(each.id): SubjectKey.of(each, masters or self.masters) for each in self.stored.values()}

    def open(self, sealed: Row, masters: MasterKeys | None = None) -> dict[str, Any]:
        text, _ = put_together(sealed.payload, self.at_hand(masters), sealed.event_type, sealed.event_id)
        opened: dict[str, Any] = json.loads(text)
        return opened


def test_what_is_sealed_is_in_no_row_and_comes_back_as_it_was() -> None:
    keys, clear = Keys(), row()
    [sealed] = keys.seal(clear)
    stored = json.loads(sealed.payload)
    assert {*stored} == {"who", "whom", "$sealed"}
    assert {*boxes_in(sealed.payload)} == {"what", "where", "how"}
    assert {*stored["$sealed"]["what"]} == {"key", "text"}
    assert stored["$sealed"]["where"]["forgotten"] == "nowhere"
    assert keys.open(sealed) == json.loads(clear.payload)
    _, values = put_together(sealed.payload, keys.at_hand(), sealed.event_type, sealed.event_id)
    assert values == ["this", "here", {"a": [None, "é"], "b": 1}]


def test_each_subject_has_one_key() -> None:
    keys = Keys()
    first, second = (json.loads(each.payload)["$sealed"] for each in keys.seal(row(), row(who="cleo")))
    assert {*keys.stored} == {"ada", "bo", "cleo"}
    assert first["what"]["key"] == first["how"]["key"] == str(keys.stored["ada"].id)
    assert first["where"]["key"] == second["where"]["key"] != first["what"]["key"]
    assert second["what"]["key"] == str(keys.stored["cleo"].id)


def test_there_is_nothing_to_seal_in_what_is_not_there() -> None:
    keys = Keys()
    [sealed] = keys.seal(row(what=None))
    assert json.loads(sealed.payload)["what"] is None
    assert {*boxes_in(sealed.payload)} == {"where", "how"}
    untouched = row()._replace(payload='{"who": "ada", "whom": "bo", "what": null, "where": null}')
    assert keys.seal(untouched) == [untouched]


def test_what_is_of_no_class_known_here_is_left_as_it_is() -> None:
    unknown = row()._replace(event_type="sealing.unknown")
    assert not asks(unknown)
    assert asks(row())
    assert Keys().seal(unknown) == [unknown]


def test_the_same_value_at_the_same_place_is_sealed_the_same() -> None:
    """T3: which is how an event that a queue brings again is known."""
    keys, clear = Keys(), row()
    again = row(clear.event_id, how={"a": [None, "é"], "b": 1})
    assert keys.seal(clear) == keys.seal(clear)
    assert boxes_in(keys.seal(clear)[0].payload) == boxes_in(keys.seal(again)[0].payload)
    [one], [other] = keys.seal(clear), keys.seal(row(clear.event_id, what="that"))
    mine, its = boxes_in(one.payload), boxes_in(other.payload)
    assert mine["what"]["text"] != its["what"]["text"]
    assert mine["where"] == its["where"]
    assert boxes_in(keys.seal(row())[0].payload)["what"]["text"] != mine["what"]["text"]


def test_a_text_opens_nowhere_but_at_its_place() -> None:
    keys = Keys()
    one, other = keys.seal(row(), row())
    mine, its = json.loads(one.payload), json.loads(other.payload)
    for field, box in (("what", its["$sealed"]["what"]), ("what", mine["$sealed"]["how"])):
        moved = json.dumps({**mine, "$sealed": {**mine["$sealed"], field: box}})
        with pytest.raises(FieldNotOpened) as refused:
            keys.open(one._replace(payload=moved))
        assert str(refused.value) == (
            f"field 'what' of event sealing.told {one.event_id} cannot be opened, since it was changed, or sealed for "
            "another place: restore its row, and outbox_subject_keys, from a backup"
        )
        assert (refused.value.event_id, refused.value.field) == (one.event_id, "what")
    with pytest.raises(FieldNotOpened):
        keys.open(one._replace(event_type="sealing.other"))


def test_a_key_that_is_destroyed_leaves_what_the_row_says_of_it() -> None:
    keys, clear = Keys(), row()
    [sealed] = keys.seal(clear)
    at_hand = keys.at_hand()
    at_hand[str(keys.stored["ada"].id)].forget()
    text, values = put_together(sealed.payload, at_hand, sealed.event_type, sealed.event_id)
    assert json.loads(text) == {**json.loads(clear.payload), "what": None, "how": {}}
    assert values == ["here"]
    forgotten = at_hand[str(keys.stored["ada"].id)]
    assert forgotten.is_forgotten
    with pytest.raises(LookupError, match="destroyed"):
        forgotten.seal(b"more", b"here")


def test_a_key_that_is_not_there_is_no_key_that_is_forgotten() -> None:
    keys = Keys()
    [sealed] = keys.seal(row())
    with pytest.raises(FieldNotOpened, match="its key is not in outbox_subject_keys any more"):
        put_together(sealed.payload, {}, sealed.event_type, sealed.event_id)


def test_a_key_is_wrapped_for_its_row_by_a_master_key() -> None:
    stored = new_key("ada", OLD)
    key = stored.unwrapped(OLD)
    assert len(key) == 32
    assert stored.unwrapped(BOTH) == key
    for masters in (None, NEW):
        with pytest.raises(
            MasterKeyUnfit, match="need master key 'old', which is not in OUTBOX_MASTER_KEYS: add it"
        ) as unfit:
            stored.unwrapped(masters)
        assert unfit.value.name == "old"
    other = MasterKeys({"old": NEW.by_id["new"]})
    for changed, masters in (
        (stored, other),
        (StoredKey(uuid4(), "ada", "old", stored.wrapped), OLD),
        (StoredKey(stored.id, "bo", "old", stored.wrapped), OLD),
        (StoredKey(stored.id, "ada", "old", "AAAA"), OLD),
    ):
        with pytest.raises(
            MasterKeyUnfit, match="has other bytes in OUTBOX_MASTER_KEYS, or a subject's key was changed"
        ):
            changed.unwrapped(masters)


def test_a_key_that_was_rewrapped_opens_what_it_has_sealed() -> None:
    keys = Keys()
    [sealed] = keys.seal(row())
    keys.stored = {
        name: StoredKey(each.id, each.subject, "new", each.rewrapped(BOTH))
        for name, each in keys.stored.items()
    }
    assert keys.open(sealed, NEW)["what"] == "this"
    keys.masters = NEW
    [again] = keys.seal(row())
    assert keys.open(again)["what"] == "this"
    assert len(keys.stored) == 2


def test_who_cannot_open_a_key_writes_nothing_with_it() -> None:
    keys = Keys()
    keys.seal(row())
    keys.masters = NEW
    with pytest.raises(MasterKeyUnfit, match="master key 'old'"):
        keys.seal(row())
    for key in keys.at_hand(NEW).values():
        assert not key.is_forgotten
        with pytest.raises(MasterKeyUnfit):
            key.open("text", b"place")
        key.forget()
        assert key.is_forgotten


def test_a_subject_that_is_nobody_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(UnserializableEvent) as refused:
        Sealing([row(who="")], OLD)
    assert (refused.value.event_type, refused.value.field) == ("sealing.told", "what")
    assert "is kept for the subject in 'who', which has 0 characters" in str(refused.value)


def test_keys_that_others_have_just_made_are_asked_for_again() -> None:
    sealing = Sealing([row()], OLD)
    assert sealing.lacking == ["ada", "bo"]
    sealing.take(None)
    with pytest.raises(ConcurrencyError, match="make and destroy the keys of the same subjects"):
        sealing.sealed()
    keys = Keys()
    keys.answer({**sealing.asked()})
    sealing.take(keys.answer({**sealing.asked(), "subjects": ["ada"], "ids": [uuid4()], "wrapped": ["x"]}))
    assert sealing.lacking == ["bo"]
    assert sealing.asked()["subjects"] == ["bo"]


@pytest.mark.parametrize(
    "payload",
    [
        '{"what": "\\"$sealed\\""}',
        '{"free": {"$sealed": {"what": {"key": "k", "text": "t"}}}}',
        '{"$sealed": 1}',
        '{"$sealed": {"what": 1}}',
        '{"$sealed": {"what": {"key": 1, "text": "t"}}}',
        '{"$sealed": {"what": {"key": "k"}}}',
        '["$sealed"]',
        '"$sealed" no JSON',
        "[" * 100_000 + '"$sealed"' + "]" * 100_000,
    ],
    ids=lambda payload: payload[:40],
)
def test_what_looks_like_a_sealed_payload_and_is_none_is_left_alone(payload: str) -> None:
    assert boxes_in(payload) == {}


@pytest.mark.parametrize("text", ["", "no base64", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"])
def test_what_was_never_sealed_is_not_opened(text: str) -> None:
    cipher = Cipher(bytes(32))
    with pytest.raises(NotOpened):
        cipher.open(text, b"here")
