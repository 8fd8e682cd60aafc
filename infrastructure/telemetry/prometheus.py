"""Numbers as Prometheus reads them: its text format, version 0.0.4 (O4)."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.telemetry.counting import Histogram
from outbox_kernel.infrastructure.telemetry.instruments import ALL, BOUNDS_SECONDS, label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from outbox_kernel.infrastructure.telemetry.metrics import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LIMITS = (*(f"{bound:g}" for bound in BOUNDS_SECONDS), "+Inf")
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def rendered(samples: Iterable[Sample]) -> str:
    """Write the numbers, those of one name together."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.instrument.name, []).append(sample)
    return "".join(
        f"{line}\n"
        for instrument in ALL
        if instrument.name in by_name
        for line in (
            f"# HELP {instrument.prometheus} {instrument.help}",
            f"# TYPE {instrument.prometheus} {instrument.kind}",
            *(line for sample in by_name[instrument.name] for line in _lines(sample)),
        )
    )


def _lines(sample: Sample) -> Iterator[str]:
    name, labels, value = sample.instrument.prometheus, sample.labels, sample.value
    if not isinstance(value, Histogram):
        yield f"{name}{_labels(labels)} {_number(value)}"
        return
    for limit, count in zip(_LIMITS, accumulate(value.counts), strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': limit})} {count}"
    yield f"{name}_sum{_labels(labels)} {_number(value.seconds)}"
    yield f"{name}_count{_labels(labels)} {sum(value.counts)}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    told = ",".join(f'{label(name)}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{told}}}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
