"""The bill of materials tells of what the distribution depends on, and the wheel carries it (PEP 770)."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from typing import Any

import pytest

from tests.pages import ROOT
from tools import check_wheel, sbom

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = """
fastapi==1.2 ; python_version > "3" \\
    --hash=sha256:00
    # via outbox-kernel (pyproject.toml)
Star_Lette==3 \\
    --hash=sha256:00
    # via
    #   -r requirements/dev.in
    #   fastapi
attrs==4 \\
    --hash=sha256:00
    # via
    #   outbox-kernel (pyproject.toml)
    #   pytest
pytest==5 \\
    --hash=sha256:00
    # via -r requirements/dev.in
"""
OURS: dict[str, Any] = {
    "name": "ours",
    "version": "1",
    "license": "MIT",
    "dependencies": ["attrs>=1"],
    "optional-dependencies": {"http": ["fastapi[all]>=1"]},
}


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sbom.SBOM.read_text())
    return found


def test_it_is_what_pyproject_and_the_pins_say_today() -> None:
    assert sbom.SBOM.read_text() == sbom.written(), "run `.venv/bin/python tools/sbom.py`"


def test_it_is_of_this_version_and_a_bill_as_cyclonedx_has_it(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"]) == (PROJECT["name"], PROJECT["version"])
    refs = [own["bom-ref"], *(each["bom-ref"] for each in bill["components"])]
    assert len(refs) == len({*refs})
    assert all(re.fullmatch(r"pkg:(pypi|npm)/[a-z0-9.-]+@[\w.+!]+", ref) for ref in refs)
    assert [each["ref"] for each in bill["dependencies"]] == refs
    assert {ref for each in bill["dependencies"] for ref in each["dependsOn"]} == {*refs[1:]}


def test_what_lies_among_our_files_is_in_it_with_its_licence_and_is_what_it_says(
    bill: dict[str, Any],
) -> None:
    [htmx] = [each for each in bill["components"] if each["purl"].startswith("pkg:npm/")]
    file = ROOT / sbom.VENDORED[0]["file"]
    assert htmx["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}]
    assert htmx["licenses"] == [{"license": {"id": "0BSD"}}]
    assert htmx["version"] in file.read_text()


def test_what_only_development_needs_is_not_in_it(bill: dict[str, Any]) -> None:
    assert {"pytest", "ruff", "mypy", "hatchling"} & {each["name"] for each in bill["components"]} == set()


def test_what_an_extra_brings_is_optional_with_all_that_it_needs() -> None:
    made = sbom.bill(OURS, sbom.pinned(PINS))
    assert [(each["purl"], each["scope"]) for each in made["components"]] == [
        ("pkg:pypi/attrs@4", "required"),
        ("pkg:pypi/fastapi@1.2", "optional"),
        ("pkg:pypi/star-lette@3", "optional"),
    ]
    assert {each["ref"]: each["dependsOn"] for each in made["dependencies"]} == {
        "pkg:pypi/ours@1": ["pkg:pypi/attrs@4", "pkg:pypi/fastapi@1.2"],
        "pkg:pypi/attrs@4": [],
        "pkg:pypi/fastapi@1.2": ["pkg:pypi/star-lette@3"],
        "pkg:pypi/star-lette@3": [],
    }


def test_a_wheel_without_it_or_with_another_is_complained_of() -> None:
    assert any("no bill of materials" in sentence for sentence in check_wheel.complaints([]))
    made = json.dumps(sbom.bill(OURS, sbom.pinned(PINS)))
    metadata = (
        "Name: ours\nVersion: 1\nRequires-Dist: attrs>=1\nRequires-Dist: Fast_API[x]>=1; extra == 'http'\n"
    )
    assert check_wheel.unbilled(metadata.replace("Fast_API", "FastAPI"), made) == []
    assert check_wheel.unbilled(metadata, made) == [
        "the bill of materials does not tell of fast-api: run `make lock`"
    ]
    assert check_wheel.unbilled("Name: ours\nVersion: 2\n", made) == [
        "the bill of materials is that of ours 1: run `make lock`"
    ]
