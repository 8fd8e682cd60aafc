"""How much is measured: enough for figures that mean something, or just enough to see that it works."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Sizes:
    """One set of sizes."""

    repetitions: int
    drain_events: int
    metrics_events: int
    """More, so that each drain takes some seconds, and meets some scrapes."""
    metrics_repetitions: int
    """And more of them, as long as too few scrapes were answered."""
    scrape_seconds: float
    slow_events: int
    effect_events: int
    commits: int
    slices: int
    slice_seconds: float
    backlog_delivered: int
    backlog_pending: int
    backlog_waiting: int
    backlog_warm_ups: int
    backlog_drain_seconds: float
    churn_seconds: float
    churn_per_s: int
    burst_events: int
    relays: tuple[int, ...]
    outage_events: int
    loop_events: int
    looked_events: int
    warm_up_seconds: float
    """Of a rate: connections are made by then, and statements prepared."""
    rate_seconds: float


FULL = Sizes(
    repetitions=3,
    drain_events=50_000,
    metrics_events=300_000,
    metrics_repetitions=7,
    scrape_seconds=1.0,
    slow_events=20_000,
    effect_events=20_000,
    commits=300,
    slices=5,
    slice_seconds=2.0,
    backlog_delivered=990_000,
    backlog_pending=10_000,
    backlog_waiting=1_000_000,
    backlog_warm_ups=1,
    backlog_drain_seconds=5.0,
    churn_seconds=600.0,
    churn_per_s=1_000,
    burst_events=20_000,
    relays=(1, 2, 4),
    outage_events=100_000,
    loop_events=100_000,
    looked_events=1_000_000,
    warm_up_seconds=2.0,
    rate_seconds=10.0,
)

SHORT = Sizes(
    repetitions=1,
    drain_events=1_000,
    metrics_events=5_000,
    metrics_repetitions=1,
    scrape_seconds=0.01,
    slow_events=500,
    effect_events=100,
    commits=10,
    slices=1,
    slice_seconds=0.3,
    backlog_delivered=9_000,
    backlog_pending=1_000,
    backlog_waiting=10_000,
    backlog_warm_ups=0,
    backlog_drain_seconds=0.3,
    churn_seconds=1.0,
    churn_per_s=500,
    burst_events=1_000,
    relays=(1, 2),
    outage_events=1_000,
    loop_events=1_000,
    looked_events=2_000,
    warm_up_seconds=0.3,
    rate_seconds=0.3,
)

AGGREGATES = 10_000
HOT_AGGREGATES = 100
# For each event.
HANDLERS = 10
