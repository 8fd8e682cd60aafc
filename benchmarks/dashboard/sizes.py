"""How much there is of everything, when it is meant and when it is only tried."""

from __future__ import annotations

import attrs


@attrs.frozen
class Sizes:
    """What is filled, and how often each page is asked for."""

    events: int
    dead: int
    places: int
    """Of each reader, over the days."""
    rounds: int
    pending: int = 1_000


SHORT = Sizes(events=100_000, dead=1_000, places=10_000, rounds=5)
FULL = Sizes(events=10_000_000, dead=100_000, places=250_000, rounds=40)
