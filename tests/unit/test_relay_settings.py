"""The relay's settings: what the environment says, or one sentence that says what is wrong with it (R15)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings


def test_a_bare_environment_gives_what_ships() -> None:
    assert RelaySettings.from_environment({"OUTBOX_POLL_INTERVAL": " "}) == RelaySettings()


def test_every_variable_is_read() -> None:
    found = RelaySettings.from_environment(
        {
            "OUTBOX_POLL_INTERVAL": "2.5",
            "OUTBOX_BATCH_SIZE": "50",
            "OUTBOX_CONCURRENCY": "7",
            "OUTBOX_MAX_RETRIES": "3",
            "OUTBOX_CLEANUP_DAYS": "never",
            "OUTBOX_LEASE_SECONDS": "30",
            "OUTBOX_GRACE_SECONDS": "0",
            "OUTBOX_CHANNEL": "bell",
            "OUTBOX_LISTEN_URL": "postgresql://listen",
            "OUTBOX_CODE_VERSION": "abc",
        }
    )
    assert found == RelaySettings(
        poll_interval_seconds=2.5,
        batch_size_max=50,
        concurrency=7,
        retries_max=3,
        cleanup_days=None,
        lease_seconds=30,
        grace_seconds=0,
        channel="bell",
        listen_url="postgresql://listen",
        code_version="abc",
    )


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        ("OUTBOX_POLL_INTERVAL", "soon", "OUTBOX_POLL_INTERVAL is 'soon': give a number from 0.01 to 3600"),
        ("OUTBOX_POLL_INTERVAL", "0", "OUTBOX_POLL_INTERVAL is 0: give a number from 0.01 to 3600"),
        ("OUTBOX_BATCH_SIZE", "2.5", "OUTBOX_BATCH_SIZE is '2.5': give a whole number from 1 to 10000"),
        (
            "OUTBOX_CLEANUP_DAYS",
            "always",
            "OUTBOX_CLEANUP_DAYS is 'always': give a number from 0 to 36500, or never",
        ),
        ("OUTBOX_CHANNEL", "no channel", "OUTBOX_CHANNEL is 'no channel', which names no channel"),
    ],
)
def test_a_value_that_is_none_is_one_sentence(variable: str, text: str, sentence: str) -> None:
    with pytest.raises(BadSetting) as refused:
        RelaySettings.from_environment({variable: text})
    assert str(refused.value).startswith(sentence)


NUMBERS = [
    *("OUTBOX_POLL_INTERVAL", "OUTBOX_BATCH_SIZE", "OUTBOX_CONCURRENCY", "OUTBOX_MAX_RETRIES"),
    *("OUTBOX_PUBLISH_RETRIES", "OUTBOX_CLEANUP_DAYS", "OUTBOX_LEASE_SECONDS", "OUTBOX_GRACE_SECONDS"),
]


@pytest.mark.parametrize("variable", NUMBERS)
@pytest.mark.parametrize("text", ["9" * 400, "-" + "9" * 400, "9" * 5_000, "x" * 400, "nan"])
def test_a_number_of_any_length_is_refused_in_one_short_sentence(variable: str, text: str) -> None:
    with pytest.raises(BadSetting) as refused:
        RelaySettings.from_environment({variable: text})
    assert str(refused.value).startswith(variable)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("channel", ["Bell", "bell", "glöckchen", "2nd", "no channel", "b" * 63, "b" * 64])
def test_a_relay_listens_wherever_commits_are_told_of_and_nowhere_else(channel: str) -> None:
    environment = {"OUTBOX_CHANNEL": channel}
    assert _refusal(lambda: RelaySettings.from_environment(environment)) == _refusal(
        lambda: Settings.from_environment(environment)
    )


def _refusal(read: Callable[[], object]) -> str | None:
    try:
        read()
    except BadSetting as refused:
        return str(refused)
    return None


def test_a_url_with_a_password_is_not_shown() -> None:
    assert "secret" not in repr(RelaySettings(listen_url="postgresql://me:secret@host/db"))
