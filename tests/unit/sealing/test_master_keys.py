"""Master keys: what is read of settings, and the sentence for what cannot be used, which quotes no key (O6, R15)."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from outbox_kernel.infrastructure.errors import BadSetting, MissingExtra
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.outbox.sealing import ciphers
from outbox_kernel.infrastructure.outbox.sealing.requiring import in_force, require_master_keys, required
from outbox_kernel.infrastructure.settings import Settings
from outbox_kernel.kernel import DomainEvent, event, sensitive
from outbox_kernel.kernel.catalogue import isolated_definitions

ONE, OTHER = bytes(range(32)), bytes(range(200, 232))
KEYS = f"new:{b64encode(ONE).decode()},old:{b64encode(OTHER).decode()}"


def test_the_first_is_the_active_one() -> None:
    keys = MasterKeys.parse(KEYS)
    assert keys.by_id == {"new": ONE, "old": OTHER}
    assert keys.active == "new"
    assert MasterKeys.parse(f" {KEYS.replace(',', chr(10))} ,") == keys
    assert MasterKeys.parse(f"old:{urlsafe_b64encode(OTHER).decode()}").by_id == {"old": OTHER}


def test_no_key_is_ever_shown() -> None:
    keys = MasterKeys.parse(KEYS)
    settings = Settings(master_keys=keys)
    for shown in (repr(keys), str(keys), repr(settings)):
        assert "['new', 'old']" in shown
        assert b64encode(ONE).decode() not in shown
        assert repr(ONE)[2:-1] not in shown
    assert hash(settings) == hash(Settings(master_keys=keys))


def test_a_new_key_serves_and_no_two_are_the_same() -> None:
    one, other = MasterKeys.parse(new_master_key()), MasterKeys.parse(new_master_key())
    assert one.active != other.active
    assert one.by_id.values() != other.by_id.values()
    assert MasterKeys.parse(new_master_key("2026-10")).active == "2026-10"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (",", "has no key in its entry 1"),
        (
            "secret",
            "has no key in its entry 1: write ID:BASE64, as `outbox keys new` prints it, with commas between",
        ),
        (f"{KEYS},,{KEYS}", "has no key in its entry 3"),
        (f"{KEYS},an id:c2VjcmV0", "has no key in its entry 3"),
        (f"{'i' * 61}:c2VjcmV0", "has no key in its entry 1"),
        ("a:secret!", "has a key 'a' that is no base64"),
        ("a:sécret", "has a key 'a' that is no base64"),
        ("a:c2VjcmV0", "has a key 'a' of 6 bytes, and 32 are needed"),
        ("a:", "has a key 'a' of 0 bytes"),
        (f"a:{b64encode(bytes(33)).decode()}", "has a key 'a' of 33 bytes"),
        (f"a:{b64encode(bytes(32)).decode()}", "has a key 'a' of one byte repeated, which anybody guesses"),
        (f"{KEYS},old:{b64encode(ONE).decode()}", "has two keys called 'old': give each an id of its own"),
    ],
)
def test_what_is_no_key_is_refused_and_not_quoted(text: str, sentence: str) -> None:
    with pytest.raises(BadSetting) as refused:
        Settings.from_environment({"OUTBOX_MASTER_KEYS": text})
    assert refused.value.name == "OUTBOX_MASTER_KEYS"
    assert str(refused.value).startswith(f"OUTBOX_MASTER_KEYS {sentence}")
    assert not {"secret", "c2VjcmV0", "sécret"} & {*str(refused.value).replace(":", " ").split()}


def test_they_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# of the shop\n" + KEYS.replace(",", "\n\n") + "\n")
    found = Settings.from_environment({"OUTBOX_MASTER_KEYS_FILE": str(file)}).master_keys
    assert found == MasterKeys.parse(KEYS)
    assert MasterKeys.from_environment({"OUTBOX_MASTER_KEYS": " ", "OUTBOX_MASTER_KEYS_FILE": ""}) is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read (No such file or directory): correct it, or let this user read it"),
        (b"\xff\xfe", "which is no text: write ID:BASE64"),
        (b"", "has no key in its entry 1"),
        (b"a:c2VjcmV0", "has a key 'a' of 6 bytes"),
    ],
)
def test_a_file_that_has_none_is_a_sentence(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadSetting) as refused:
        MasterKeys.from_environment({"OUTBOX_MASTER_KEYS_FILE": str(file)})
    assert refused.value.name == "OUTBOX_MASTER_KEYS_FILE"
    assert sentence in str(refused.value)


def test_they_stand_in_one_place() -> None:
    with pytest.raises(BadSetting, match="is set beside OUTBOX_MASTER_KEYS: take one of them out"):
        MasterKeys.from_environment({"OUTBOX_MASTER_KEYS": KEYS, "OUTBOX_MASTER_KEYS_FILE": "keys"})


def test_what_is_given_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_MASTER_KEYS", KEYS)
    given = MasterKeys.parse(new_master_key())
    assert in_force(given) is given
    assert in_force(None) == MasterKeys.parse(KEYS)


def test_a_process_needs_one_only_where_an_event_asks_for_it() -> None:
    with isolated_definitions():
        from outbox_kernel.kernel import catalogue

        catalogue.definitions.event_by_name.clear()
        require_master_keys(None)

        @event("sealed.asking")
        class Asking(DomainEvent):
            who: UUID
            what: str = sensitive(subject="who")
            where: str = sensitive(subject="who")

        with pytest.raises(BadSetting) as refused:
            require_master_keys(None)
    assert str(refused.value) == (
        "OUTBOX_MASTER_KEYS is not set, and event 'sealed.asking' keeps 'what', 'where' encrypted: make a key with "
        "`outbox keys new`, and give it to every process of this outbox"
    )
    assert required(MasterKeys.parse(KEYS)) == MasterKeys.parse(KEYS)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking() -> Any:
        raise MissingExtra("sealed", "what encrypts sensitive fields")

    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    ciphers._aes_gcm.cache_clear()  # noqa: SLF001 - what an import has found is remembered
    with pytest.raises(MissingExtra, match=r"run `pip install 'outbox-kernel\[sealed\]'`"):
        required(MasterKeys.parse(KEYS))
    monkeypatch.undo()
    ciphers._aes_gcm.cache_clear()  # noqa: SLF001 - as above
