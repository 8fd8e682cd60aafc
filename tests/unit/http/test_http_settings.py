"""The settings of the API, from the environment."""

from __future__ import annotations

import pytest

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.http import HttpSettings


def test_a_bare_environment_has_the_defaults() -> None:
    settings = HttpSettings.from_environment({})
    assert settings == HttpSettings()
    assert (settings.host, settings.port, settings.relay, settings.docs) == ("127.0.0.1", 8000, False, True)


def test_each_variable_is_read() -> None:
    settings = HttpSettings.from_environment(
        {
            "OUTBOX_API_HOST": "0.0.0.0",  # noqa: S104 - what a container listens to
            "OUTBOX_API_PORT": "80",
            "OUTBOX_API_RELAY": "Yes",
            "OUTBOX_API_DOCS": "off",
            "OUTBOX_API_TOKEN_KEY": "key",
            "OUTBOX_API_TOKEN_ISSUER": "us",
            "OUTBOX_API_TOKEN_AUDIENCE": "them",
            "OUTBOX_API_BODY_BYTES_MAX": "10",
            "OUTBOX_API_REQUEST_SECONDS": "1.5",
            "OUTBOX_API_GRACE_SECONDS": "2",
            "OUTBOX_API_POOL_SIZE": "3",
        }
    )
    assert settings == HttpSettings(
        host="0.0.0.0",  # noqa: S104 - as above
        port=80,
        relay=True,
        docs=False,
        token_key="key",
        token_issuer="us",
        token_audience="them",
        body_bytes_max=10,
        request_seconds_max=1.5,
        grace_seconds=2,
        pool_size=3,
    )


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("OUTBOX_API_PORT", "http", "is 'http': give a whole number from 0 to 65535"),
        ("OUTBOX_API_PORT", "70000", "is 70000: give a number from 0 to 65535"),
        ("OUTBOX_API_PORT", "9" * 400, "is 9{39}…: give a number from 0 to 65535"),
        ("OUTBOX_API_RELAY", "perhaps", "is 'perhaps': write yes or no"),
        ("OUTBOX_API_REQUEST_SECONDS", "soon", "is 'soon': give a number from 0.01 to 3600"),
    ],
)
def test_a_bad_value_is_one_sentence(variable: str, value: str, sentence: str) -> None:
    with pytest.raises(BadSetting, match=f"^{variable} {sentence}$"):
        HttpSettings.from_environment({variable: value})


def test_the_key_is_asked_for_and_never_shown() -> None:
    with pytest.raises(BadSetting, match="OUTBOX_API_TOKEN_KEY is not set"):
        _ = HttpSettings().required_token_key
    assert "hunter2" not in repr(HttpSettings(token_key="hunter2"))
    assert HttpSettings(token_key="hunter2").required_token_key == "hunter2"
