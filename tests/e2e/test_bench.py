"""`outbox bench relay`: every measurement runs, and tells its figures beside its floor."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hostile.bodies import BODIES
from benchmarks.relay.processes import MeasurementFailed, children
from tests.brokers import Broker
from tests.commands import failed_in_one_sentence, outbox
from tests.servers import Server

FIGURES = {
    "drain": {"events_per_s", "raw_events_per_s", "ratio", "cpu_us_per_event", "wal_bytes_per_event"},
    "hot": {"events_per_s", "drain_events_per_s", "ratio_to_drain"},
    "fanout": {"runs_per_s", "drain_events_per_s", "ratio_to_drain", "handlers"},
    "metrics": {"events_per_s", "events_per_s_with_dashboard", "ratio", "ratio_with_dashboard", "scrapes"},
    "effects": {"events_per_s", "raw_events_per_s", "ratio"},
    "effects_batch": {"events_per_s", "raw_events_per_s", "ratio", "batch"},
    "latency": {"p50_ms", "p99_ms", "floor_p50_ms", "floor_p99_ms", "ratio"},
    "writers": {"commits_per_s", "commits_per_s_without", "ratio"},
    "slow": {"events_per_s", "most_events_per_s", "ratio", "cpu_share"},
    "backlog": {"us_per_event", "us_per_event_in_small_table", "ratio", "peak_mb"},
    "pinned": {
        "sustainable_rate_with",
        "sustainable_rate_without",
        "ratio",
        "dead_tuples",
        "late_delivered",
    },
    "scale": {
        "slow_1_events_per_s",
        "slow_2_ratio",
        "drain_1_events_per_s",
        "drain_2_ratio",
    },
    "outage": {"events_per_s", "publish_events_per_s", "ratio", "rows_written", "noticed_s"},
    "loop": {
        "emit_events_per_s",
        "new_aggregates_events_per_s",
        "server_cores",
        "server_cores_beside_a_transaction",
        "server_cores_without_relay",
        "server_cores_of_bare_commits",
        "relay_ms_per_event",
        "relay_ms_per_event_at_low_rate",
        "bare_ms_per_event_at_low_rate",
        "dead_tuples",
    },
    "looking": {"status_ms", "events_delivered_ms", "analysed_events_delivered_ms", "walk_ratio"},
}

# What the log is for: nothing is written over, and nothing at all for a broker that is away.
NONE = {("pinned", "dead_tuples"), ("outage", "rows_written"), ("loop", "dead_tuples")}

# On a busy machine a listener hears of a commit before the process that commits gets its answer.
MAY_BE_NEGATIVE = {("latency", figure) for figure in ("floor_p50_ms", "floor_p99_ms", "ratio")}


def is_likely(name: str, figure: str, value: float | None) -> bool:
    """Whether a figure may be that."""
    if (name, figure) in NONE:
        return value == 0
    if figure.startswith("server_cores"):
        # Unknown of a server on another machine, and counted in hundredths of a second.
        return value is None or value >= 0
    return value is not None and (value > 0 or (name, figure) in MAY_BE_NEGATIVE)


def unlikely(figures: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the figures that cannot be."""
    return {
        f"{name}.{figure}": value
        for name, found in figures.items()
        if name != "machine"
        for figure, value in found.items()
        if not is_likely(name, figure, value)
    }


@pytest.fixture(scope="module")
def of_relay(postgres_server: Server) -> dict[str, Any]:
    done = outbox("bench", "relay", "--short", "--json", DATABASE_URL=postgres_server.url)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_every_measurement_tells_its_figures(of_relay: dict[str, Any], name: str) -> None:
    assert of_relay.keys() == {"machine", *FIGURES}
    assert FIGURES[name] <= of_relay[name].keys()
    assert unlikely({name: of_relay[name]}) == {}


def test_only_what_is_named_is_measured(postgres_server: Server) -> None:
    done = outbox("bench", "relay", "--short", "--only", "slow", DATABASE_URL=postgres_server.url)
    assert (done.returncode, done.stderr) == (0, "")
    names = {line.partition(".")[0] for line in done.stdout.splitlines()}
    assert names == {"machine", "slow"}


def test_a_name_that_is_none_is_refused() -> None:
    sentence = failed_in_one_sentence(outbox("bench", "relay", "--only", "speed"), code=2)
    assert "no measurement 'speed'" in sentence


async def test_a_process_that_has_reported_may_end_before_the_others(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    tasks = ({"kind": "tests.lingering.linger", "until_told_by": told} for told in ("", str(pipe)))
    async with children(*tasks) as family:
        ending = asyncio.create_task(family.end())
        await family.found[0].listening
        await asyncio.to_thread(pipe.write_text, "now")
        assert len(await ending) == 2


async def test_a_process_that_ends_without_a_report_ends_the_measurement() -> None:
    with pytest.raises(MeasurementFailed, match="ended with code 0 before all was measured"):
        async with children({"kind": "tests.lingering.leave"}) as family:
            await family.until_marked(1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("api", {"ratio", "commits_per_s", "commits_per_s_without_events"}), ("capture", set())],
)
def test_the_short_form_of_the_others_works_too(
    name: str, expected: set[str], postgres_server: Server
) -> None:
    done = outbox("bench", name, "--short", "--json", DATABASE_URL=postgres_server.url)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert all(figures.values())
    assert {figure for figure in expected if figures[figure] > 0} == expected


def test_every_page_of_the_dashboard_is_told_with_its_locks(postgres_server: Server) -> None:
    done = outbox(
        "bench", "dashboard", "--events", "2000", "--short", "--json", DATABASE_URL=postgres_server.url
    )
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["filled"]["events"] == 2_000
    assert set(figures["all"]["lock_modes"]) <= {"AccessShareLock"}
    assert figures["all"]["waited_for_locks"] is False
    assert figures["retry"]["letters"] == 200
    pages = {name: found for name, found in figures.items() if "ratio" in found}
    assert {"overview_24h", "events_by_rare_text", "event", "letters", "confirm_rewind"} <= pages.keys()
    assert unlikely(pages) == {}


BROKER_FIGURES = {
    "publish": {"events_per_s", "floor_events_per_s", "ratio"},
    "consume": {"events_per_s", "floor_events_per_s", "ratio"},
    "end_to_end": {"p50_ms", "p99_ms"},
}


def test_what_a_broker_costs_is_told_beside_its_floors(
    postgres_server: Server, rabbitmq_broker: Broker
) -> None:
    settings: dict[str, Any] = {"DATABASE_URL": postgres_server.url, "RABBITMQ_URL": rabbitmq_broker.url}
    done = outbox("bench", "rabbitmq", "--short", "--json", **settings)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures.keys() == {"machine", *BROKER_FIGURES}
    for name, expected in BROKER_FIGURES.items():
        assert expected <= figures[name].keys()
    assert unlikely(figures) == {}


def test_what_is_made_to_hurt_is_measured(postgres_server: Server) -> None:
    # Whoever measures has no keys.
    settings: dict[str, Any] = {"DATABASE_URL": postgres_server.url, "OUTBOX_MASTER_KEYS": ""}
    done = outbox("bench", "hostile", "--short", "--json", **settings)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    half_open = figures.pop("half_open")
    assert half_open["health_answered"] == half_open["health_asked"] > 0
    assert figures.keys() == BODIES.keys()
    for found in figures.values():
        assert found.keys() == {"bytes", "status", "health_waits_ms", "memory_mb"}
        assert found["health_waits_ms"] > 0
        assert 200 <= found["status"] < 500
