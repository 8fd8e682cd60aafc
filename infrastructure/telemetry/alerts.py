"""Alerts: what is worth waking somebody for, each named after the heading of the runbook that says what to do (O4, O5).

Each process tells how the whole outbox stands, so an alert takes the most of what they say. Who watches several
outboxes gives each scrape job a label `outbox`, by which they are told apart.
"""

from __future__ import annotations

import json
import re
from typing import Any

import attrs

from outbox_kernel.infrastructure.telemetry import instruments as numbers
from outbox_kernel.infrastructure.telemetry.instruments import Instrument, label
from outbox_kernel.infrastructure.telemetry.limits import LAG_SECONDS

OUTBOX = "outbox"
"""The label by which several outboxes are told apart."""
RUNBOOK = "docs/runbook.md"
_SUBSCRIPTION, _QUEUE = label(numbers.SUBSCRIPTION), label(numbers.DESTINATION)
_NAMED = f"{{{{ $labels.{_SUBSCRIPTION} }}}}"
_QUEUED = f"{{{{ $labels.{_QUEUE} }}}}"
_PAGE, _TICKET = "page", "ticket"


@attrs.frozen
class Alert:
    """One alert, and the heading that it is named after."""

    heading: str
    expression: str
    lasts: str
    severity: str
    says: str

    @property
    def name(self) -> str:
        """The heading as Prometheus has names."""
        words = re.findall(r"\w+", self.heading.replace("'", ""))
        return "".join(f"{word[0].upper()}{word[1:]}" for word in words)

    @property
    def anchor(self) -> str:
        """The heading as a link has it."""
        return re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")


def most(instrument: Instrument, *by: str, where: str = "") -> str:
    """Return the most of what processes say, for each of these labels."""
    chosen = f"{{{where}}}" if where else ""
    return f"max by ({', '.join((OUTBOX, *by))}) ({instrument.prometheus}{chosen})"


def equals(attribute: str, value: str) -> str:
    """Return what chooses the numbers of which that is so."""
    return f'{label(attribute)}="{value}"'


def alerts(lag_seconds: float = LAG_SECONDS) -> list[Alert]:
    """Return all alerts; an event is old after so many seconds."""
    return [
        *_of_relays(),
        *_of_subscriptions(lag_seconds),
        *_of_leases(),
        *_of_what_is_away(),
        *_of_the_rest(),
    ]


_LIVE = most(numbers.RELAYS, where=equals(numbers.STATE, "live"))


def _of_relays() -> list[Alert]:
    lag, carriers = most(numbers.LAG, _SUBSCRIPTION), most(numbers.CARRIERS, _SUBSCRIPTION)
    return [
        Alert(
            *("No relay lives", f"{_LIVE} == 0 or absent({numbers.LOOKS_FAILED.prometheus})", "1m", _PAGE),
            "No relay lives, or no process of this outbox is scraped: events wait.",
        ),
        Alert(
            *("Nobody reads for a subscription", f"{lag} > 0 and {carriers} == 0", "2m", _PAGE),
            f"Events stand behind {_NAMED}, and no live relay carries it.",
        ),
    ]


def _of_subscriptions(lag_seconds: float) -> list[Alert]:
    late = f"{most(numbers.LAG_TIME, _SUBSCRIPTION)} > {lag_seconds:g}"
    held = f"{most(numbers.PAUSED, _SUBSCRIPTION)} == 1"
    dead = most(numbers.DELIVERIES, _SUBSCRIPTION, where=equals(numbers.STATUS, "dead"))
    stranded, uncarried = most(numbers.STRANDED, _SUBSCRIPTION), most(numbers.UNCARRIED, _SUBSCRIPTION)
    return [
        Alert(
            *("The oldest event is old", f"{late} unless {held}", "1m", _PAGE),
            f"{_NAMED} has stood before an event for {{{{ $value | humanizeDuration }}}}.",
        ),
        Alert(
            *("Deliveries are dead", f"{dead} > 0", "0s", _TICKET),
            f"{{{{ $value }}}} deliveries of {_NAMED} are dead: later events of their aggregates wait.",
        ),
        Alert(
            *("Deliveries nobody can run", f"{stranded} > 0", "5m", _TICKET),
            f"{{{{ $value }}}} deliveries of {_NAMED} can be run by no live relay.",
        ),
        Alert(
            *("A pattern that no live relay carries", f"{uncarried} > 0", "15m", _TICKET),
            f"{_NAMED} is due by {{{{ $value }}}} patterns that no live relay of its name carries.",
        ),
    ]


def _of_leases() -> list[Alert]:
    lost = f"sum by ({OUTBOX}, instance) (increase({numbers.LEASE_LOSSES.prometheus}[15m]))"
    hears = f"min by ({OUTBOX}, instance) ({numbers.HEARING.prometheus})"
    return [
        Alert(
            *("Leases are held by nobody", f"{most(numbers.ORPHANS)} > 0 and {_LIVE} > 0", "2m", _TICKET),
            "{{ $value }} cursors and deliveries are held by relays that do not live.",
        ),
        Alert(
            *("A relay has lost its lease", f"{lost} > 0", "0s", _TICKET),
            "{{ $labels.instance }} has not renewed its lease in time.",
        ),
        Alert(
            *("The relay does not hear", f"{hears} == 0", "5m", _TICKET),
            "{{ $labels.instance }} does not hear of commits, and polls.",
        ),
    ]


def _of_what_is_away() -> list[Alert]:
    handler, publisher = (
        f"{most(numbers.STANDING_STILL, _SUBSCRIPTION, where=equals(numbers.KIND, kind))} == 1"
        for kind in ("handler", "publisher")
    )
    buried = f"sum by ({OUTBOX}, {_QUEUE}) (increase({numbers.BURIED.prometheus}[15m]))"
    return [
        Alert(
            *("A handler stands still", handler, "1m", _PAGE),
            f"{_NAMED} stands still: what it needs is away.",
        ),
        Alert(
            *("A publisher stands still", publisher, "1m", _PAGE),
            f"{_NAMED} stands still: its broker takes nothing.",
        ),
        Alert(
            *("A queue is stuck", f"{most(numbers.STUCK, _QUEUE)} == 1", "1m", _PAGE),
            f"A consumer cannot take from {_QUEUED} as it should.",
        ),
        Alert(
            *("Messages among the broker's dead letters", f"{buried} > 0", "0s", _TICKET),
            f"Messages of {_QUEUED} could not be stored, and are among the dead letters.",
        ),
    ]


def _of_the_rest() -> list[Alert]:
    return [
        Alert(
            *("The metrics are old", f"{most(numbers.LOOK_AGE)} > 60", "1m", _PAGE),
            "A process cannot ask the database how the outbox stands.",
        )
    ]


def rules(lag_seconds: float = LAG_SECONDS, runbook: str = RUNBOOK) -> dict[str, Any]:
    """Return them as Prometheus reads a file of rules."""
    return {
        "groups": [
            {
                "name": "outbox-kernel",
                "rules": [
                    {
                        "alert": each.name,
                        "expr": each.expression,
                        "for": each.lasts,
                        "labels": {"severity": each.severity},
                        "annotations": {
                            "summary": each.heading,
                            "description": each.says,
                            "runbook_url": f"{runbook}#{each.anchor}",
                        },
                    }
                    for each in alerts(lag_seconds)
                ],
            }
        ]
    }


def as_yaml(value: Any, indent: int = 0) -> str:
    """Write what is made of objects, lists and texts as YAML for people; each text stands as JSON has it."""
    space = " " * indent
    if isinstance(value, dict):
        return "".join(
            f"{space}{key}: {json.dumps(each, ensure_ascii=False)}\n"
            if isinstance(each, str)
            else f"{space}{key}:\n{as_yaml(each, indent + 2)}"
            for key, each in value.items()
        )
    items = [as_yaml(each, indent + 2) for each in value]
    return "".join(f"{space}- {item[indent + 2 :]}" for item in items)
