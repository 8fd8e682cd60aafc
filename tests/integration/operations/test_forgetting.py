"""To forget destroys a key, and to rotate encrypts the others anew; doctor tells what cannot be opened (O6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import attrs
import pytest

from outbox_kernel.infrastructure.errors import MasterKeyUnfit, MissingExtra
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.operations import health_of_keys, rewrapping
from outbox_kernel.infrastructure.operations.forgetting import forget
from outbox_kernel.infrastructure.operations.health_of_keys import examine_keys
from outbox_kernel.infrastructure.operations.rewrapping import Rewrapped, rewrap
from outbox_kernel.infrastructure.operations.selection import NothingFound
from outbox_kernel.infrastructure.operations.stories import history, show
from outbox_kernel.infrastructure.outbox.sealing.keys import StoredKey, new_key
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import catalogue
from tests.integration.operations.conftest import Outbox
from tests.whispers import SECRET, Whispered

OLD, NEW = (MasterKeys.parse(new_master_key(name)) for name in ("old", "new"))
BOTH = MasterKeys({**NEW.by_id, **OLD.by_id})
INSERT = "INSERT INTO outbox_subject_keys (id, subject, master_key, wrapped) VALUES ($1, $2, $3, $4)"


async def key_of(outbox: Outbox, subject: str, masters: MasterKeys = OLD) -> StoredKey:
    made = new_key(subject, masters)
    await outbox.execute(INSERT, made.id, made.subject, made.master_key, made.wrapped)
    return made


async def stored_keys(outbox: Outbox) -> list[StoredKey]:
    rows = await outbox.rows(
        "SELECT id, subject, master_key, wrapped FROM outbox_subject_keys ORDER BY subject"
    )
    return [StoredKey(**row) for row in rows]


# --- to forget ----------------------------------------------------------------------------------------------


async def test_the_key_is_gone_and_what_tells_of_it_stays(outbox: Outbox) -> None:
    kept, gone = await key_of(outbox, "bo"), await key_of(outbox, "ada")
    found = await forget(outbox.desk, "ada")
    assert found.subject == "ada"
    assert found.since is not None
    assert found.since < found.forgotten_at
    [row] = await outbox.rows("SELECT * FROM outbox_subject_keys WHERE subject = 'ada'")
    assert (row["id"], row["wrapped"], row["master_key"]) == (gone.id, None, None)
    assert row["forgotten_at"] == found.forgotten_at
    assert kept in await stored_keys(outbox)


async def test_to_forget_again_is_no_harm_and_says_since_when(outbox: Outbox) -> None:
    await key_of(outbox, "ada")
    first = await forget(outbox.desk, "ada")
    assert await forget(outbox.desk, "ada") == attrs.evolve(first, since=None)
    await key_of(outbox, "ada")
    again = await forget(outbox.desk, "ada")
    assert again.forgotten_at > first.forgotten_at
    assert await outbox.value("SELECT count(*) FROM outbox_subject_keys") == 2


async def test_a_uuid_may_be_typed_in_any_writing(outbox: Outbox) -> None:
    ada = uuid4()
    await key_of(outbox, str(ada))
    assert (await forget(outbox.desk, ada.hex.upper())).subject == str(ada)
    assert (await forget(outbox.desk, f"{{{ada}}}")).since is None
    await key_of(outbox, ada.hex)
    assert (await forget(outbox.desk, ada.hex)).subject == ada.hex


async def test_who_was_never_sealed_for_is_a_sentence(outbox: Outbox) -> None:
    with pytest.raises(
        NothingFound, match="nothing was ever sealed for subject 'nobody': write it as the events do"
    ):
        await forget(outbox.desk, "nobody")


async def test_relays_are_told(outbox: Outbox) -> None:
    await key_of(outbox, "ada")
    heard = asyncio.Event()
    listener = await asyncpg.connect(outbox.url)
    await listener.add_listener("outbox_channel", lambda *_: heard.set())
    await forget(outbox.desk, "ada")
    async with asyncio.timeout(10):
        await heard.wait()
    await listener.close()


async def test_what_is_sealed_is_shown_as_a_mask(outbox: Outbox) -> None:
    """K11: whether its class is known here or not."""
    wallet = uuid4()
    payload = {"what": "one", "$sealed": {"secret": {"key": str(uuid4()), "text": "x"}}}
    known = await outbox.event(wallet, event_type="whisper.told", payload=payload)
    unknown = await outbox.event(wallet, event_type="whisper.unknown", payload=payload)
    for event_id, what in ((known, "one"), (unknown, "***")):
        assert (await show(outbox.desk, event_id)).payload == {"what": what, "secret": "***"}
    from outbox_kernel.infrastructure.operations import AggregateKey

    told = await history(outbox.desk, AggregateKey(wallet, "bank.wallet"))
    assert [each.payload["secret"] for each in told if isinstance(each.payload, dict)] == ["***", "***"]
    assert catalogue.sealed_fields_of("whisper.told", 1)
    assert SECRET not in repr(Whispered("one", UUID(int=0)))


# --- to rotate ----------------------------------------------------------------------------------------------


async def test_every_key_is_encrypted_anew_by_the_active_master_key(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch by batch; what was destroyed stays so, and to do it again does nothing."""
    monkeypatch.setattr(rewrapping, "REWRAPPED_BATCH_MAX", 2)
    keys = {name: (await key_of(outbox, name)).unwrapped(OLD) for name in "abcde"}
    await key_of(outbox, "f", NEW)
    await key_of(outbox, "g")
    await forget(outbox.desk, "g")
    steps: list[int] = []

    def begin(total: int) -> Callable[[int], None]:
        assert total == 5
        return steps.append

    assert await rewrap(outbox.desk, BOTH, begin) == Rewrapped("new", 5, {})
    assert steps == [2, 2, 1]
    living = [each for each in await stored_keys(outbox) if each.wrapped]
    assert {each.subject: each.unwrapped(NEW) for each in living if each.subject != "f"} == keys
    assert {each.master_key for each in living} == {"new"}
    assert await rewrap(outbox.desk, NEW) == Rewrapped("new", 0, {})


async def test_keys_of_master_keys_that_are_not_at_hand_are_left_and_told(outbox: Outbox) -> None:
    await key_of(outbox, "a")
    await key_of(outbox, "b", NEW)
    other = MasterKeys.parse(new_master_key("other"))
    assert await rewrap(outbox.desk, MasterKeys({**other.by_id, **NEW.by_id})) == Rewrapped(
        "other", 1, {"old": 1}
    )
    assert [(each.subject, each.master_key) for each in await stored_keys(outbox)] == [
        ("a", "old"),
        ("b", "other"),
    ]


async def test_a_master_key_with_other_bytes_changes_nothing(outbox: Outbox) -> None:
    before = [await key_of(outbox, "a"), await key_of(outbox, "b")]
    with pytest.raises(MasterKeyUnfit, match="'old', which has other bytes in OUTBOX_MASTER_KEYS"):
        await rewrap(outbox.desk, MasterKeys({**NEW.by_id, "old": NEW.by_id["new"]}))
    assert await stored_keys(outbox) == before


OTHER_BYTES = (
    "1 subject key: sealed fields need master key 'old', which has other bytes in OUTBOX_MASTER_KEYS, or a subject's "
    "key was changed"
)


# --- doctor -------------------------------------------------------------------------------------------------


async def examined(outbox: Outbox, masters: MasterKeys | None) -> list[tuple[str, str, str | None]]:
    found = await examine_keys(outbox.desk, Settings(master_keys=masters))
    assert {each.check for each in found} == {"master keys"}
    return [(each.state, each.detail, each.remedy) for each in found]


async def test_doctor_says_by_which_master_key_keys_are_encrypted(outbox: Outbox) -> None:
    assert await examined(outbox, OLD) == [("ok", "'old' encrypts 0 subject keys", None)]
    await key_of(outbox, "a")
    await key_of(outbox, "b", NEW)
    assert await examined(outbox, BOTH) == [
        (
            "warn",
            "1 subject key of 2 encrypted by another master key than the active one, 'new'",
            "`outbox keys rotate` encrypts them anew",
        )
    ]
    await rewrap(outbox.desk, BOTH)
    assert await examined(outbox, NEW) == [("ok", "'new' encrypts 2 subject keys", None)]


async def test_doctor_fails_over_keys_that_cannot_be_opened_here(outbox: Outbox) -> None:
    await key_of(outbox, "a")
    await key_of(outbox, "b", NEW)
    assert await examined(outbox, MasterKeys({"old": NEW.by_id["new"]})) == [
        (
            "fail",
            "1 subject key: sealed fields need master key 'new', which is not in OUTBOX_MASTER_KEYS",
            "add it behind the active one",
        ),
        (
            "fail",
            OTHER_BYTES,
            "restore the right one",
        ),
    ]


async def test_doctor_fails_without_a_master_key_where_one_is_needed(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUTBOX_MASTER_KEYS")
    [(state, detail, remedy)] = await examined(outbox, None)
    assert (state, remedy) == (
        "fail",
        "make a key with `outbox keys new`, and give it to every process of this outbox",
    )
    assert detail.startswith("OUTBOX_MASTER_KEYS is not set, and event ")
    monkeypatch.setattr(catalogue.definitions, "event_by_name", {})
    assert await examined(outbox, None) == [("ok", "none is set, and nothing is sealed", None)]
    await key_of(outbox, "a")
    [(state, detail, _)] = await examined(outbox, None)
    assert (state, detail) == (
        "fail",
        "OUTBOX_MASTER_KEYS is not set, and an event keeps fields encrypted",
    )


async def test_doctor_names_the_extra_where_it_is_missing(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(_: object) -> None:
        raise MissingExtra("sealed", "what encrypts sensitive fields")

    monkeypatch.setattr(health_of_keys, "require_master_keys", lacking)
    assert await examined(outbox, OLD) == [
        (
            "fail",
            "what encrypts sensitive fields is not installed",
            "run `pip install 'outbox-kernel[sealed]'`",
        )
    ]


# --- as it is typed -----------------------------------------------------------------------------------------


def test_forgetting_is_told_to_people_and_programs(run: Any, by_hand: Any) -> None:
    by_hand(lambda outbox: key_of(outbox, "ada"))
    code, out, _ = run("forget", "ada", "--yes")
    assert code == 0
    assert out.startswith("ada is forgotten: what was sealed for it since 20")
    assert out.endswith(" cannot be read\n")
    code, out, _ = run("forget", "ada")
    assert (code, out.startswith("ada was forgotten at 20"), "nothing was sealed for it since" in out) == (
        0,
        True,
        True,
    )
    told = json.loads(run("forget", "ada", "--json")[1])
    assert (told["subject"], told["destroyed"], told["sealed_since"]) == ("ada", False, None)
    code, out, err = run("forget", "bo")
    assert (code, out) == (1, "")
    assert err.startswith("error: nothing was ever sealed for subject 'bo'")


def test_forgetting_asks_first(run: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand(lambda outbox: key_of(outbox, "ada"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda question, err: "destroy the key of ada?" not in question)
    assert run("forget", "ada") == run("forget", "ada", "--json") == (1, "", "nothing was changed\n")
    assert by_hand(stored_keys)[0].wrapped


def test_rotating_is_told_and_fails_while_some_are_left(
    run: Any,
    by_hand: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_hand(lambda outbox: key_of(outbox, "ada"))
    made = run("keys", "new", "--id", "2026-10")[1].strip()
    assert made.startswith("2026-10:")
    monkeypatch.setenv("OUTBOX_MASTER_KEYS", made)
    code, out, err = run("keys", "rotate")
    assert (code, out) == (1, "0 subject keys encrypted anew by 2026-10\n")
    assert (
        err
        == "1 subject key encrypted by old, which OUTBOX_MASTER_KEYS does not name: add it, and type this again\n"
    )
    monkeypatch.setenv("OUTBOX_MASTER_KEYS", f"{made},{_written(OLD)}")
    told = run("keys", "rotate", "--json")
    assert (told[0], json.loads(told[1])) == (0, {"active": "2026-10", "rewrapped": 1, "left": {}})
    assert by_hand(stored_keys)[0].master_key == "2026-10"
    monkeypatch.delenv("OUTBOX_MASTER_KEYS")
    code, _, err = run("keys", "rotate")
    assert code == 1
    assert err.startswith("error: OUTBOX_MASTER_KEYS is not set")


def _written(masters: MasterKeys) -> str:
    from base64 import b64encode

    return ",".join(f"{name}:{b64encode(key).decode()}" for name, key in masters.by_id.items())


def test_a_new_key_is_one_for_programs_too_and_has_a_name_that_can_be_one(run: Any) -> None:
    told = json.loads(run("keys", "new", "--json")[1])
    assert MasterKeys.parse(told["master_key"]).active.startswith("k")
    code, _, err = run("keys", "new", "--id", "a:b")
    assert code == 2
    assert "take letters, digits, dots, dashes and underscores" in err
