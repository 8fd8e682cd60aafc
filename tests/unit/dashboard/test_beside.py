"""What serves the dashboard: beside an API, and by a command that says what is missing (O2, O3)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from outbox_kernel.infrastructure.application import Outbox
from outbox_kernel.infrastructure.cli import beside, dashboard, dev, main
from outbox_kernel.infrastructure.errors import MissingExtra
from outbox_kernel.infrastructure.relay import RelaySettings
from outbox_kernel.infrastructure.settings import Settings

TOLD = {
    "url": "http://127.0.0.1:8000",
    "docs": "…/docs",
    "folder": "here",
    "database_url": "…",
    "curl": "curl",
}


def noting(name: str, seen: list[tuple[str, str, str]]) -> Any:
    async def app(scope: Any, *_: Any) -> None:
        seen.append((name, scope.get("root_path", ""), scope.get("path", "")))

    return app


@pytest.mark.parametrize(
    ("scope", "answers", "root"),
    [
        ({"path": "/dashboard"}, "dashboard", "/dashboard"),
        ({"path": "/dashboard/events"}, "dashboard", "/dashboard"),
        ({"path": "/dashboard/", "root_path": "/a"}, "dashboard", "/a/dashboard"),
        ({"path": "/dashboards"}, "api", ""),
        ({"path": "/"}, "api", ""),
        ({"type": "lifespan"}, "api", ""),
    ],
)
async def test_what_is_below_its_path_is_the_dashboards(scope: Any, answers: str, root: str) -> None:
    seen: list[tuple[str, str, str]] = []
    app = beside.Mounted(noting("dashboard", seen), "/dashboard", noting("api", seen))
    await app(scope, None, None)  # type: ignore[arg-type]
    assert seen == [(answers, root, scope.get("path", ""))]


async def test_where_its_extra_is_missing_the_api_stands_alone_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(beside, "find_spec", lambda _: None)
    outbox = Outbox(
        settings=Settings(database_url="postgresql://localhost/a"), relay_settings=RelaySettings()
    )
    assert await beside.beside_api(outbox, sample=False) is None
    page = dev._page(TOLD, sample=False)  # noqa: SLF001 - what is printed then
    assert "not there: run `pip install 'outbox-kernel[dashboard]'`" in page


def test_without_a_server_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dashboard, "find_spec", lambda _: None)
    with pytest.raises(SystemExit):
        main(["dashboard"])
    assert "what serves the dashboard is not installed" in capsys.readouterr().err


def test_a_function_that_needs_what_is_not_installed_says_so_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "access_of_http.py").write_text(
        "from outbox_kernel.infrastructure.errors import MissingExtra\nraise MissingExtra('http', 'what signs')\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(each for each in sys.path if each)])
    with pytest.raises(MissingExtra, match=r"what signs is not installed"):
        dashboard.loaded("access_of_http:authorize")
    assert sys.path[0] == ""
