"""Numbers of a process, by their names, as a test asks for them."""

from __future__ import annotations

from typing import Any

from outbox_kernel.infrastructure.telemetry import Metrics
from outbox_kernel.infrastructure.telemetry.counting import Histogram
from outbox_kernel.infrastructure.telemetry.metrics import Sample


class Numbers:
    """What a process tells at one moment."""

    def __init__(self, samples: list[Sample]) -> None:
        self.samples = samples

    @classmethod
    async def of(cls, metrics: Metrics) -> Numbers:
        return cls(await metrics.samples())

    def all(self, name: str, **labels: str) -> dict[tuple[str, ...], Any]:
        """The numbers of a name whose labels end so, by the values of all their labels."""
        return {
            tuple(each.labels.values()): each.value
            for each in self.samples
            if each.instrument.name == name
            and all(_ends(each.labels, end) == value for end, value in labels.items())
        }

    def one(self, name: str, **labels: str) -> Any:
        """The one number of a name and such labels."""
        [found] = self.all(name, **labels).values()
        return found

    def count(self, name: str, **labels: str) -> int:
        """How many a histogram has counted."""
        found: Histogram = self.one(name, **labels)
        return sum(found.counts)


def _ends(labels: Any, end: str) -> str | None:
    return next((value for name, value in labels.items() if name.replace(".", "_").endswith(end)), None)
