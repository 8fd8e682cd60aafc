"""Lineage: what led to an event, and what it led to, by the ids that handlers leave in the headers (K10, O3)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs

from outbox_kernel.infrastructure.operations.limits import CHILDREN_MAX, DEPTH_MAX, LINEAGE_EVENTS_MAX
from outbox_kernel.infrastructure.outbox.sql.searching import CAUSES, EFFECTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from outbox_kernel.infrastructure.operations.desk import Desk


@attrs.frozen(kw_only=True)
class Kin:
    """An event in a tree of causes."""

    position: int
    event_id: UUID
    event_type: str
    aggregate_type: str | None
    aggregate_id: UUID | None
    aggregate_key: str | None
    created_at: datetime
    effects: list[Kin]


@attrs.frozen
class Lineage:
    """A tree, from the first cause that is still there."""

    root: Kin
    cause_is_gone: bool
    """Whether something has caused the root that is not in the outbox: purged, or of somebody else's."""
    events: int
    is_cut: bool
    """Whether there may be more than is told."""


async def lineage(desk: Desk, event_id: UUID) -> Lineage | None:
    """Tell what an event comes from and what has come of it; None: there is no such event."""
    causes = await desk.run(CAUSES, event_id=event_id, depth_max=DEPTH_MAX)
    if not causes:
        return None
    effects = await desk.run(
        EFFECTS,
        event_id=event_id,
        depth_max=DEPTH_MAX,
        children_max=CHILDREN_MAX,
        events_max=LINEAGE_EVENTS_MAX,
    )
    return tree(causes, effects)


def tree(causes: Sequence[Mapping[str, Any]], effects: Sequence[Mapping[str, Any]]) -> Lineage:
    """Put the causes, the first of them first, above the tree of effects; an event stands once in it."""
    children: dict[Any, list[Mapping[str, Any]]] = {}
    seen = {row["event_id"] for row in causes}
    for row in effects:
        if row["event_id"] not in seen:
            seen.add(row["event_id"])
            children.setdefault(row["parent"], []).append(row)
    above: dict[Any, Mapping[str, Any]] = {}
    for cause, effect in pairwise(causes):
        if cause["event_id"] not in above:
            above[cause["event_id"]] = effect
    root = _kin(causes[0], children, above, set())
    return Lineage(
        root,
        cause_is_gone=causes[0]["caused_by"] is not None,
        events=len(seen),
        is_cut=len(effects) >= LINEAGE_EVENTS_MAX or _is_wide(children),
    )


def _is_wide(children: Mapping[Any, Sequence[object]]) -> bool:
    return any(len(each) >= CHILDREN_MAX for each in children.values())


def _kin(
    row: Mapping[str, Any],
    children: Mapping[Any, Sequence[Mapping[str, Any]]],
    above: Mapping[Any, Mapping[str, Any]],
    told: set[Any],
) -> Kin:
    told.add(row["event_id"])
    below = [above[row["event_id"]]] if row["event_id"] in above else children.get(row["event_id"], [])
    names = [field.name for field in attrs.fields(Kin) if field.name != "effects"]
    return Kin(
        **{name: row[name] for name in names},
        effects=[_kin(each, children, above, told) for each in below if each["event_id"] not in told],
    )
