"""Doctor says when the line is missing that keeps an application's autogenerate off the outbox (D3, O1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_kernel.infrastructure.operations.health_of_alembic import examine_alembic
from outbox_kernel.infrastructure.operations.verdicts import Check

WITHOUT = "from alembic import context\n\n# include_object=leave_outbox()\ncontext.configure()\n"
WITH = (
    "from alembic import context\n\nfrom outbox_kernel.alembic import leave_outbox\n\n"
    "context.configure(include_object=leave_outbox())\n"
)
QUALIFIED = (
    "from outbox_kernel import alembic\n\ncontext.configure(include_object=alembic.leave_outbox(own))\n"
)


@pytest.fixture(autouse=True)
def in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def examined(
    env: str, *, location: str = "alembic", name: str = "alembic.ini", text: str = ""
) -> list[Check]:
    folder = Path(location.replace("%(here)s/", "").replace(":", "/"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "env.py").write_text(env)
    Path(name).write_text(text or f"[alembic]\nscript_location = {location}\nsqlalchemy.url = x://%(y)s\n")
    return examine_alembic([Path.cwd()])


@pytest.mark.parametrize("location", ["alembic", "%(here)s/db/migrations", "shop:migrations"])
def test_an_env_without_the_line_is_a_warning_with_the_line(location: str) -> None:
    [found] = examined(WITHOUT, location=location)
    assert (found.check, found.state) == ("alembic", "warn")
    assert "would drop its tables" in found.detail
    assert found.detail.endswith("tables")
    assert not found.detail.startswith("/")
    assert (
        found.remedy
        == "say `include_object=leave_outbox()`, of outbox_kernel.alembic, in its context.configure"
    )


@pytest.mark.parametrize("env", [WITH, QUALIFIED])
def test_an_env_with_it_is_well(env: str) -> None:
    [found] = examined(env)
    assert (found.state, found.detail) == ("ok", "alembic/env.py leaves the outbox to itself")


def test_alembics_section_of_a_pyproject_is_read_as_well() -> None:
    text = '[tool.alembic]\nscript_location = "%(here)s/alembic"\n'
    [found] = examined(WITHOUT, name="pyproject.toml", text=text)
    assert found.state == "warn"


def test_what_cannot_be_read_is_said_and_stops_no_other_check() -> None:
    [found] = examined("context.configure(\n")
    assert (found.state, found.detail) == ("warn", "alembic/env.py cannot be read (SyntaxError)")


@pytest.mark.parametrize("text", ["no ini at all", "[other]\nscript_location = alembic", "[alembic]\nx = 1"])
def test_without_an_alembic_there_is_nothing_to_say(text: str) -> None:
    assert examined(WITHOUT, text=text) == []
    assert examine_alembic([Path.cwd() / "nowhere"]) == []
