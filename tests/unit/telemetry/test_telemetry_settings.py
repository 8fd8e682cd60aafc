"""Where metrics are served, and how traces hang together: the settings (O4, R15)."""

from __future__ import annotations

import pytest

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.telemetry import TelemetrySettings
from outbox_kernel.infrastructure.telemetry.settings import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", Address("127.0.0.1", 9464)),
        ("9464", Address("127.0.0.1", 9464)),
        (":0", Address("127.0.0.1", 0)),
        ("[::1]:9464", Address("::1", 9464)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),  # noqa: S104 - whoever says so has it
    ],
)
def test_an_address_is_this_machines_own_unless_it_says_otherwise(text: str, address: Address) -> None:
    assert Address.of(text) == address


@pytest.mark.parametrize("text", ["", "localhost", "a:b", "host:70000", "²:²"])
def test_what_is_no_address_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(
        BadSetting, match=r"which is no address: write a host and a port, such as 127\.0\.0\.1:9464"
    ):
        Address.of(text)


def test_nothing_is_served_and_traces_are_linked_unless_said() -> None:
    assert TelemetrySettings.from_environment({}) == TelemetrySettings(metrics=None, traces="linked")
    environ = {"OUTBOX_METRICS": " 9464 ", "OUTBOX_TRACES": "One"}
    assert TelemetrySettings.from_environment(environ) == TelemetrySettings(
        metrics=Address("127.0.0.1", 9464), traces="one"
    )
    with pytest.raises(BadSetting, match="OUTBOX_TRACES is 'all': give one of linked, one, off"):
        TelemetrySettings.from_environment({"OUTBOX_TRACES": "all"})
