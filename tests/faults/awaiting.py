"""What the present relay does not keep, and the rebuilt one must: this list has to become empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from tests.faults.cell import Report


@frozen
class Awaited:
    """What is broken in a cell for now: a sentence, and the columns that may show it; the others must be zero."""

    sentence: str
    columns: frozenset[str]


CHARGED_FOR_OUTAGES = "handlers-cut-off"
# By the cell's name. One that is in here and keeps its promises fails the run.
AWAITING_REBUILD: dict[str, Awaited] = {
    "undecodable-moments": Awaited(
        "a moment that Python does not have ends the relay that reads it, and each that takes over (R9)",
        frozenset({"stuck", "wrong"}),
    ),
    "undecodable-payloads": Awaited(
        "a payload that is no object is tried for as long as its handler's schedule says, not dead at once (R9)",
        frozenset({"stuck", "wrong"}),
    ),
    CHARGED_FOR_OUTAGES: Awaited(
        "a handler whose connection to the outbox's own database is lost is charged for that (R7)",
        frozenset({"wrong"}),
    ),
}


def is_as_expected(report: Report) -> bool:
    """Whether a cell kept its promises, or broke those alone of which that is known; strictly."""
    awaited, broken = AWAITING_REBUILD.get(report.cell), report.judgement.broken
    return bool(broken) and broken <= awaited.columns if awaited else not broken


def verdict(report: Report) -> str | None:
    """What to say of a cell that is in the list."""
    awaited, broken = AWAITING_REBUILD.get(report.cell), report.judgement.broken
    if awaited is None:
        return None
    if not broken:
        return "keeps its promises now: take it out of AWAITING_REBUILD in tests/faults/awaiting.py"
    if more := broken - awaited.columns:
        return f"breaks more than awaits the rebuilt relay: {', '.join(sorted(more))}"
    return f"awaits the rebuilt relay: {awaited.sentence}"


def summary(reports: list[Report]) -> str | None:
    """What to say at the end of a run that had cells of the list."""
    broken = [each.cell for each in reports if each.cell in AWAITING_REBUILD and each.judgement.broken]
    return f"await the rebuilt relay: {len(broken)} cells, {', '.join(broken)}" if broken else None
