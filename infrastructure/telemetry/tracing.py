"""Whether this process makes spans: it costs nothing where nobody has set up OpenTelemetry (O4).

An application says where its spans go as it does for every other library, `trace.set_tracer_provider(…)`; our commands
do so when the environment names a collector. Until then nothing of OpenTelemetry is imported here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.telemetry.settings import LINKED, OFF, ONE

if TYPE_CHECKING:
    from outbox_kernel.infrastructure.telemetry.spans import Spans

_API = "opentelemetry.trace"


class Tracing:
    """How traces hang together in this process, and what makes spans there."""

    def __init__(self) -> None:
        self.mode = LINKED
        self._spans: Spans | None = None

    def spans(self) -> Spans | None:
        """Return what makes spans, if anybody takes them."""
        api = sys.modules.get(_API)
        if api is None or self.mode == OFF:
            return None
        provider = api.get_tracer_provider()
        if isinstance(provider, api.ProxyTracerProvider):
            return None
        spans = self._spans
        if spans is None or spans.provider is not provider or spans.is_one != (self.mode == ONE):
            from outbox_kernel.infrastructure.telemetry.spans import Spans  # noqa: PLC0415 - it needs the API

            spans = self._spans = Spans(provider, is_one=self.mode == ONE)
        return spans

    def ids(self) -> dict[str, str]:
        """Return what a line of the log says of the span in which it is written."""
        if self.spans() is None:
            return {}
        from outbox_kernel.infrastructure.telemetry.spans import current_ids  # noqa: PLC0415 - as above

        return current_ids()


tracing = Tracing()
"""Of this process, as OpenTelemetry's own provider is."""
