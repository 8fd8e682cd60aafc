"""What it costs to restore an event from its payload: the kernel's way and the fast one, in turns, as JSON in µs.

    python -m benchmarks.decoding [rounds]

The ratio is of one run, and so of one machine in one mood; the figures of two runs are not to be compared.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING
from uuid import uuid4

from benchmarks.parcels import NOTE, ParcelRegistered
from benchmarks.relay.parcels import weighed
from outbox_kernel.infrastructure.outbox.decoding import decoder_for
from outbox_kernel.kernel import DomainEvent, deserialize_event, serialize_event
from outbox_kernel.kernel.catalogue import event_type_of
from outbox_kernel.kernel.events import stamp_event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROUNDS = 200
CALLS = 200


def measured(rounds: int) -> dict[str, dict[str, float]]:
    """Restore each event in both ways, and stamp it."""
    parcel = uuid4()
    found = [ParcelRegistered(parcel, "Ada Lovelace", NOTE), weighed(parcel)]
    return {event_type_of(type(each)).name: _both_ways(each, rounds) for each in found}


def _both_ways(event: DomainEvent, rounds: int) -> dict[str, float]:
    kind = event_type_of(type(event))
    # With its keys as jsonb gives them back.
    body = json.loads(serialize_event(event))
    text = json.dumps({key: body[key] for key in sorted(body, key=lambda key: (len(key), key))})
    fast = decoder_for(kind.name, kind.version)
    if fast(text) != event:
        raise AssertionError(f"{kind.name} does not come back equal")

    def stamped() -> None:
        stamp_event(fast(text), "bench.parcel", event.event_id, 1, aggregate_key=None, not_before=None)

    took = _medians_us(
        {
            "kernel": lambda: deserialize_event(kind.name, text, kind.version),
            "fast": lambda: fast(text),
            "fast_and_stamped": stamped,
        },
        rounds,
    )
    return {**took, "ratio": round(took["kernel"] / took["fast"], 1)}


def _medians_us(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Go through all ways in each round, so that what disturbs the machine disturbs them alike."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    gc.disable()
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                way()
            samples[name].append((time.perf_counter_ns() - start) / CALLS / 1_000)
    gc.enable()
    return {name: round(statistics.median(took), 2) for name, took in samples.items()}


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS), indent=2))
