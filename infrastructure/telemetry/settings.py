"""What a process tells of itself, and where: its settings (O4)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from attrs import field, frozen

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.telemetry.limits import PORT_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attrs import Attribute

METRICS_VARIABLE, TRACES_VARIABLE = "OUTBOX_METRICS", "OUTBOX_TRACES"
LOOPBACK = "127.0.0.1"
LINKED, ONE, OFF = TRACES = ("linked", "one", "off")
_REMEDY = f"write a host and a port, such as {LOOPBACK}:9464, or a port alone"


@frozen
class Address:
    """Where to listen."""

    host: str
    port: int
    """0: any that is free."""

    @classmethod
    def of(cls, text: str, setting: str = METRICS_VARIABLE) -> Address:
        """Read `host:port`, `[host]:port` or a port; without a host it is this machine's own."""
        host, _, digits = text.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (digits.isascii() and digits.isdigit() and int(digits) <= PORT_MAX):
            raise BadSetting(setting, f"is {text!r}, which is no address: {_REMEDY}")
        return cls(host or LOOPBACK, int(digits))


def _known(_: object, __: Attribute[str], traces: str) -> None:
    if traces not in TRACES:
        raise BadSetting(TRACES_VARIABLE, f"is {traces!r}: give one of {', '.join(TRACES)}")


@frozen(kw_only=True)
class TelemetrySettings:
    """Where the numbers are served, and how traces hang together."""

    metrics: Address | None = None
    """None: they are not served."""
    traces: str = field(default=LINKED, validator=_known)
    """`linked`: a handler's run is a trace of its own, with a link to what it comes from. `one`: all is one trace."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> TelemetrySettings:
        """Read the settings; an empty variable counts as one that is not set."""
        address = environ.get(METRICS_VARIABLE, "").strip()
        return cls(
            metrics=Address.of(address) if address else None,
            traces=environ.get(TRACES_VARIABLE, "").strip().lower() or LINKED,
        )
