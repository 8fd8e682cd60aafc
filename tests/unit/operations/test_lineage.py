"""An event's causes and effects are one tree, in which each stands once (O3, K10)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from outbox_kernel.infrastructure.operations.limits import CHILDREN_MAX, LINEAGE_EVENTS_MAX
from outbox_kernel.infrastructure.operations.lineage import Kin, tree

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def row(name: str, parent: str | None = None, caused_by: str | None = None) -> dict[str, Any]:
    return {
        "position": 1,
        "event_id": name,
        "event_type": name,
        "aggregate_type": None,
        "aggregate_id": None,
        "aggregate_key": None,
        "created_at": NOW,
        "caused_by": caused_by,
        "parent": parent,
    }


def shape(kin: Kin) -> Any:
    return {kin.event_type: [shape(each) for each in kin.effects]} if kin.effects else kin.event_type


def test_causes_stand_above_an_event_and_effects_below() -> None:
    causes = [row("a"), row("b", caused_by="a"), row("c", caused_by="b")]
    effects = [row("c"), row("d", "c"), row("e", "c"), row("f", "e")]
    found = tree(causes, effects)
    assert shape(found.root) == {"a": [{"b": [{"c": ["d", {"e": ["f"]}]}]}]}
    assert found.events == 6
    assert not found.cause_is_gone
    assert not found.is_cut


def test_a_cause_that_is_gone_is_told() -> None:
    assert tree([row("c", caused_by="purged")], [row("c")]).cause_is_gone


def test_what_goes_round_in_a_ring_ends() -> None:
    causes = [row("a", caused_by="b"), row("b", caused_by="a"), row("a", caused_by="b")]
    found = tree(causes, [row("a"), row("b", "a"), row("a", "b")])
    assert shape(found.root) == {"a": ["b"]}


def test_a_tree_that_is_cut_says_so() -> None:
    wide = [row("a"), *(row(f"b{number}", "a") for number in range(CHILDREN_MAX))]
    assert tree([row("a")], wide).is_cut
    many = [row("a"), *(row(f"b{number}", f"b{number - 1}") for number in range(1, LINEAGE_EVENTS_MAX))]
    assert tree([row("a")], many).is_cut
