"""How much is measured: enough for figures that mean something, or just enough to see that it works."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Sizes:
    """One set of sizes."""

    repetitions: int
    drain_events: int
    slow_events: int
    effect_events: int
    commits: int
    slices: int
    slice_seconds: float
    backlog_delivered: int
    backlog_pending: int
    backlog_waiting: int
    backlog_drain_seconds: float
    churn_seconds: float
    churn_per_s: int
    burst_events: int
    relays: tuple[int, ...]


FULL = Sizes(
    repetitions=3,
    drain_events=50_000,
    slow_events=20_000,
    effect_events=20_000,
    commits=300,
    slices=5,
    slice_seconds=2.0,
    backlog_delivered=990_000,
    backlog_pending=10_000,
    backlog_waiting=1_000_000,
    backlog_drain_seconds=5.0,
    churn_seconds=60.0,
    churn_per_s=1_000,
    burst_events=20_000,
    relays=(1, 2, 4),
)

SHORT = Sizes(
    repetitions=1,
    drain_events=1_000,
    slow_events=500,
    effect_events=100,
    commits=10,
    slices=1,
    slice_seconds=0.3,
    backlog_delivered=9_000,
    backlog_pending=1_000,
    backlog_waiting=10_000,
    backlog_drain_seconds=0.3,
    churn_seconds=3.0,
    churn_per_s=500,
    burst_events=1_000,
    relays=(1, 2),
)

AGGREGATES = 10_000
HOT_AGGREGATES = 100
