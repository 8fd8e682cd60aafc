"""Holds the measured coverage against coverage-floor.toml, which only rises.

Reads build/coverage.json, prints a line per group and fails where a group is below its floor.
`--raise` writes what was reached, rounded down, wherever that is higher than the floor.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

FLOOR = Path("coverage-floor.toml")
MEASURED = Path("build/coverage.json")
# Below this the laws of capture and delivery would rest on hope.
NEVER_BELOW_PERCENT = {"kernel": 95.0, "infrastructure/outbox": 95.0}
# A gap of this much means somebody wrote tests: keep what they won.
SLACK_PERCENT = 0.5
# Written by a run that found no RabbitMQ; what only talks to one is then not held against a floor.
LEFT_OUT = Path("build/left-out")
TALKS_TO_A_BROKER = (
    "infrastructure/brokers/rabbitmq/",
    "infrastructure/cli/consume.py",
    "infrastructure/cli/dead_letters.py",
    "infrastructure/cli/topology.py",
    "infrastructure/inbox/",
)


def reached_percent(files: dict[str, dict[str, Any]], group: str) -> float | None:
    """Lines and branches run, of all there are in the group; None if nothing of it was measured."""
    folder = "" if group == "total" else f"{group}/"
    summaries = [file["summary"] for path, file in files.items() if path.startswith(folder)]
    possible = sum(summary["num_statements"] + summary["num_branches"] for summary in summaries)
    run = sum(summary["covered_lines"] + summary["covered_branches"] for summary in summaries)
    return 100 * run / possible if possible else None


def complaints(floors: dict[str, float], reached: dict[str, float | None]) -> list[str]:
    """What is wrong, a sentence each."""
    found = [
        f"the floor of {group} may not be below {least} %: set it back in {FLOOR}"
        for group, least in NEVER_BELOW_PERCENT.items()
        if floors.get(group, 0) < least
    ]
    for group, floor in floors.items():
        percent = reached[group]
        if percent is None:
            found.append(f"nothing of {group} was measured: run the whole suite with `make test`")
        elif percent < floor:
            found.append(f"{group} reached {percent:.2f} %, its floor is {floor} %: test what is new")
    return found


def raised(text: str, reached: dict[str, float | None]) -> str:
    """The floor file's text with each figure raised to what was reached, rounded down to a tenth."""

    def higher(match: re.Match[str]) -> str:
        percent = reached[match["group"]] or 0
        return f'"{match["group"]}" = {max(float(match["floor"]), math.floor(percent * 10) / 10)}'

    return re.sub(r'^"(?P<group>[^"]+)" = (?P<floor>[\d.]+)', higher, text, flags=re.MULTILINE)


def main() -> int:
    """Print each group, then what is wrong; the exit code says whether anything is."""
    if not MEASURED.exists():
        print(f"{MEASURED} is missing: `make test` writes it")
        return 1
    files = json.loads(MEASURED.read_text())["files"]
    if LEFT_OUT.exists():
        print(f"coverage: without what talks to a broker, {LEFT_OUT.read_text().strip()}")
        files = {path: file for path, file in files.items() if not path.startswith(TALKS_TO_A_BROKER)}
    floors: dict[str, float] = tomllib.loads(FLOOR.read_text())["floor"]
    reached = {group: reached_percent(files, group) for group in floors}
    for group, percent in reached.items():
        if percent is not None:
            hint = " (`make raise-floor` keeps it)" if percent >= floors[group] + SLACK_PERCENT else ""
            print(f"coverage {group:<24} {percent:6.2f} %, floor {floors[group]} %{hint}")
    wrong = complaints(floors, reached)
    for sentence in wrong:
        print(f"coverage: {sentence}")
    if not wrong and "--raise" in sys.argv[1:]:
        FLOOR.write_text(raised(FLOOR.read_text(), reached))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
