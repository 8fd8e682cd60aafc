"""A dashboard for Grafana, made of the numbers there are: what goes through, what waits, and who works (O4)."""

from __future__ import annotations

from typing import Any

import attrs

from outbox_kernel.infrastructure.telemetry import instruments as numbers
from outbox_kernel.infrastructure.telemetry.alerts import OUTBOX, equals, most
from outbox_kernel.infrastructure.telemetry.instruments import Instrument, label

TITLE, UID = "Outbox", "outbox-kernel"
WIDTH, HEIGHT, COLUMNS = 12, 8, 24
_SUBSCRIPTION, _QUEUE = label(numbers.SUBSCRIPTION), label(numbers.DESTINATION)
_STATUS, _STATE, _OUTCOME = label(numbers.STATUS), label(numbers.STATE), label(numbers.OUTCOME)
_ROUTE, _CODE = label(numbers.ROUTE), label(numbers.CODE)
_HERE = f'{OUTBOX}=~"$outbox"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@attrs.frozen
class Panel:
    """A graph, or a number, with what it shows: each query with the words for its lines."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    is_number: bool = False


def panels() -> list[Panel]:
    """Return what the dashboard shows, row by row."""
    return [*_at_a_glance(), *_what_goes_through(), *_what_waits(), *_brokers(), *_processes(), *_requests()]


def _at_a_glance() -> list[Panel]:
    live = _now(numbers.RELAYS, where=equals(numbers.STATE, "live"))
    still = f"sum({_now(numbers.STANDING_STILL, _SUBSCRIPTION)})"
    found = (
        Panel("Live relays", "none", ((live, ""),)),
        Panel("Events that are not delivered", "none", ((_now(numbers.BACKLOG, _STATE), _of(_STATE)),)),
        Panel("Oldest event", "s", ((_now(numbers.OLDEST), ""),)),
        Panel("Standing still", "none", ((still, ""),)),
    )
    return [attrs.evolve(each, is_number=True) for each in found]


def _what_goes_through() -> list[Panel]:
    waits = tuple(
        (_quantile(percent, numbers.COMMIT_TO_HANDLER, _SUBSCRIPTION), f"p{percent:g} {_of(_SUBSCRIPTION)}")
        for percent in (50, 99)
    )
    lasts = _quantile(99, numbers.PROCESS_DURATION, _SUBSCRIPTION)
    runs = _rate(numbers.PROCESS_DURATION, _SUBSCRIPTION, _OUTCOME, part="_count")
    return [
        Panel("Commit to handler", "s", waits),
        Panel("How long handlers run, p99", "s", ((lasts, _of(_SUBSCRIPTION)),)),
        Panel("Runs", "ops", ((runs, _of(_SUBSCRIPTION, _OUTCOME)),)),
        Panel("Events written", "ops", ((_rate(numbers.WRITTEN, "instance"), _of("instance")),)),
    ]


def _what_waits() -> list[Panel]:
    deliveries = _now(numbers.DELIVERIES, _SUBSCRIPTION, _STATUS)
    return [
        Panel(
            "Events behind each subscription",
            "none",
            ((_now(numbers.LAG, _SUBSCRIPTION), _of(_SUBSCRIPTION)),),
        ),
        Panel("For how long", "s", ((_now(numbers.LAG_TIME, _SUBSCRIPTION), _of(_SUBSCRIPTION)),)),
        Panel("Deliveries that are not settled", "none", ((deliveries, _of(_SUBSCRIPTION, _STATUS)),)),
    ]


def _brokers() -> list[Panel]:
    sent = _rate(numbers.SENT, _SUBSCRIPTION, _OUTCOME)
    confirms = _quantile(99, numbers.CLIENT_DURATION, _SUBSCRIPTION)
    taken = _rate(numbers.CONSUMED, _QUEUE, where=equals(numbers.OPERATION, "receive"))
    buried = _rate(numbers.BURIED, _QUEUE)
    return [
        Panel("Events sent to brokers", "ops", ((sent, _of(_SUBSCRIPTION, _OUTCOME)),)),
        Panel("How long brokers take to confirm, p99", "s", ((confirms, _of(_SUBSCRIPTION)),)),
        Panel(
            *("Messages taken from queues, and buried", "ops"),
            ((taken, _of(_QUEUE)), (buried, f"{_of(_QUEUE)} buried")),
        ),
    ]


def _processes() -> list[Panel]:
    lost = f"sum by (instance) (increase({_chosen(numbers.LEASE_LOSSES)}[$__rate_interval]))"
    deaf = f"1 - {_each(numbers.HEARING)}"
    return [
        Panel("For how long leases hold", "s", ((_each(numbers.LEASE_REMAINING), _of("instance")),)),
        Panel(
            *("Leases lost, and relays that do not hear", "none"),
            ((lost, f"lost {_of('instance')}"), (deaf, f"deaf {_of('instance')}")),
        ),
    ]


def _requests() -> list[Panel]:
    asked = _rate(numbers.REQUEST_DURATION, _ROUTE, _CODE, part="_count")
    lasts = _quantile(99, numbers.REQUEST_DURATION, _ROUTE)
    return [
        Panel("Requests", "ops", ((asked, _of(_ROUTE, _CODE)),)),
        Panel("How long requests take, p99", "s", ((lasts, _of(_ROUTE)),)),
    ]


def dashboard() -> dict[str, Any]:
    """Return it as Grafana imports it."""
    made, x, y = [], 0, 0
    for number, panel in enumerate(panels(), start=1):
        width = WIDTH // 2 if panel.is_number else WIDTH
        height = HEIGHT // 2 if panel.is_number else HEIGHT
        made.append(_panel(number, panel, {"x": x, "y": y, "w": width, "h": height}))
        x += width
        if x >= COLUMNS:
            x, y = 0, y + height
    return {
        "title": TITLE,
        "uid": UID,
        "tags": ["outbox-kernel"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), _outboxes()]},
        "panels": made,
    }


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "expr": query, "legendFormat": words or "__auto", "datasource": _SOURCE}
        for at, (query, words) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "title": panel.title,
        "type": "stat" if panel.is_number else "timeseries",
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _outboxes() -> dict[str, Any]:
    return {
        "name": OUTBOX,
        "type": "query",
        "label": "Outbox",
        "datasource": _SOURCE,
        "query": f"label_values({numbers.RELAYS.prometheus}, {OUTBOX})",
        "includeAll": True,
        # One outbox alone has no such label.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


# --- queries ------------------------------------------------------------------------------------------


def _of(*names: str) -> str:
    """Return the words for a line, by its labels."""
    return " ".join(f"{{{{{name}}}}}" for name in names)


def _both(where: str) -> str:
    return ",".join(filter(None, (_HERE, where)))


def _chosen(instrument: Instrument, part: str = "", where: str = "") -> str:
    return f"{instrument.prometheus}{part}{{{_both(where)}}}"


def _now(instrument: Instrument, *by: str, where: str = "") -> str:
    """Return how the outbox stands, as any process says it."""
    return most(instrument, *by, where=_both(where))


def _each(instrument: Instrument) -> str:
    return f"min by (instance) ({_chosen(instrument)})"


def _rate(instrument: Instrument, *by: str, part: str = "", where: str = "") -> str:
    return f"sum by ({', '.join(by)}) (rate({_chosen(instrument, part, where)}[$__rate_interval]))"


def _quantile(percent: float, instrument: Instrument, *by: str) -> str:
    rates = _rate(instrument, *by, "le", part="_bucket")
    return f"histogram_quantile({percent / 100:g}, {rates})"
