"""How things went: what each subscription passed over the past hour, day or week, how late, how fast (O3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.limits import LATENCY_EVENTS_MAX, LATENCY_LOOK_MAX, SERIES_STEPS
from outbox_kernel.infrastructure.outbox.sql.series import LATENCIES, SERIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from outbox_kernel.infrastructure.operations.desk import Desk

WINDOWS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@attrs.frozen
class Step:
    """A stretch of time, up to a moment."""

    at: datetime
    passed: int
    """Events in it."""
    lag_seconds: float | None
    """At its end; None: nobody knows, since the subscription was not there."""
    seconds: float
    """How long it was."""


@attrs.frozen
class Series:
    """One subscription over time."""

    name: str
    steps: list[Step]

    @property
    def rates(self) -> list[float]:
        """Events per second, step by step."""
        return [step.passed / step.seconds for step in self.steps]

    @property
    def lags(self) -> list[float | None]:
        """Seconds behind, step by step."""
        return [step.lag_seconds for step in self.steps]


@attrs.frozen
class Latency:
    """How long the newest events took from their commit until they were passed."""

    name: str
    events: int
    """Of how many."""
    p50_seconds: float
    p95_seconds: float


def moments(end: datetime, window: timedelta) -> list[datetime]:
    """Return the moments between the steps of a window, its end included.

    They stand by the clock, so that what is past stays where it is whenever somebody looks. The last step goes on to
    the end: it is as long as the others at least, and less than two of them.
    """
    step = window / SERIES_STEPS
    last = end - (end - _EPOCH) % step
    return [*(last - step * number for number in range(SERIES_STEPS, 0, -1)), end]


async def series(desk: Desk, window: timedelta, name: str | None = None) -> list[Series]:
    """Tell of each subscription, or one, what it passed and how late it was."""
    asked = moments(await desk.clock(), window)
    rows = await desk.run(SERIES, moments=asked, name=name)
    return [Series(each, steps(list(found))) for each, found in groupby(rows, key=lambda row: row["name"])]


def steps(rows: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Make steps of running totals; a total that goes down is of readers that have been forgotten meanwhile."""
    return [
        Step(
            now["at"],
            max(0, (now["passed"] or 0) - (before["passed"] or 0)),
            now["lag_seconds"],
            (now["at"] - before["at"]).total_seconds(),
        )
        for before, now in pairwise(rows)
    ]


def together(every: Iterable[Series]) -> tuple[list[float], list[float | None]]:
    """Return the rate of all subscriptions together, and the lag of the latest, step by step."""
    listed = list(every)
    rates = [sum(rates) for rates in zip(*(each.rates for each in listed), strict=True)]
    lags = [
        max((lag for lag in lags if lag is not None), default=None)
        for lags in zip(*(each.lags for each in listed), strict=True)
    ]
    return rates, lags


async def latencies(desk: Desk, name: str | None = None) -> dict[str, Latency]:
    """Tell by name how long the newest events took."""
    rows = await desk.run(LATENCIES, name=name, look_max=LATENCY_LOOK_MAX, events_max=LATENCY_EVENTS_MAX)
    return {row["name"]: Latency(**row) for row in rows}
