"""`outbox dashboard`: it serves this machine, or whom a function lets in, and stops when it is told (O1, O3)."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from outbox_kernel.infrastructure.sample.shop import SUBSCRIPTIONS
from tests import servers
from tests.commands import failed_in_one_sentence, outbox
from tests.integration.dashboard.conftest import filled
from tests.integration.operations.conftest import fresh_outbox
from tests.processes import Serving
from tests.visiting import Page

ACCESS = """
from outbox_kernel.infrastructure.dashboard import Operator


def authorize(request):
    who = request.headers.get("x-who")
    return Operator(who, {"view", "pause"}) if who else None


nothing = 42
"""


@pytest.fixture(scope="module")
def sample_url(postgres_server: servers.Server) -> Iterator[str]:
    with fresh_outbox(postgres_server) as url:
        servers.run(filled(url))
        yield url


def test_it_serves_this_machine_tells_who_did_what_and_stops_at_once(sample_url: str) -> None:
    with Serving("dashboard", "--port", "0", "--json", DATABASE_URL=sample_url) as server:
        url = json.loads(server.first_output())["url"]
        with httpx.Client(base_url=url) as browser:
            page = Page(browser.get("subscriptions").text)
            assert SUBSCRIPTIONS[0].name in page.text
            form = page.form("/do/pause", name="mail.Welcome")
            done = browser.post(
                form.action,
                data=dict(form.fields),
                headers={"origin": url.rstrip("/")},
                follow_redirects=True,
            )
            assert "mail.Welcome is paused." in Page(done.text).text
            said = server.wait_for("somebody at this machine: pause")
            assert (said["did"], said["subscription"], said["outcome"]) == (
                "pause",
                "mail.Welcome",
                "done",
            )
            assert browser.get("", headers={"host": "evil.example"}).status_code == 403
            assert server.wait_for("refused: 'evil.example'")["action"] == "dashboard.refused"
            # Somebody listens still.
            with browser.stream("GET", "live") as stream:
                words = stream.iter_text()
                assert next(words).startswith("retry:")
                server.process.send_signal(signal.SIGTERM)
                for _ in words:
                    pass
        assert server.process.wait(30) == 0


def test_for_people_it_prints_where_it_is(sample_url: str) -> None:
    with Serving("dashboard", "--port", "0", "--host", "localhost", DATABASE_URL=sample_url) as server:
        assert server.first_output().startswith("The dashboard is at http://127.0.0.1:")
        assert server.interrupt() == 0


def test_beyond_this_machine_a_function_says_who_asks(
    sample_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_access.py").write_text(ACCESS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = ("--host", "0.0.0.0", "--port", "0", "--prefix", "/ops", "--json")  # noqa: S104 - that is the case
    with Serving(
        "dashboard",
        *words,
        "--authorize",
        "shop_access:authorize",
        DATABASE_URL=sample_url,
        OUTBOX_DASHBOARD_KEY="a key of the tests that is long enough to be one",
        PYTHONPATH=str(tmp_path),
    ) as server:
        url = json.loads(server.first_output())["url"]
        assert httpx.get(f"{url}ops/").status_code == 403
        answer = httpx.get(f"{url}ops/relays", headers={"x-who": "ada", "host": "ops.example"})
        assert answer.status_code == 200
        assert "ada" in answer.text
        assert "/ops/static/dashboard.css" in answer.text
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ("--host", "0.0.0.0"),  # noqa: S104 - that is the case
            2,
            "without --authorize only this machine itself is answered, and 0.0.0.0 is for",
        ),
        (
            ("--host", "ops.example"),
            2,
            "and ops.example is for others, too: name the function that says who asks",
        ),
        (
            ("--authorize", "nowhere:authorize"),
            2,
            "'nowhere:authorize' cannot be imported (No module named 'nowhere')",
        ),
        (("--authorize", "json"), 2, "write MODULE:FUNCTION, such as shop.access:authorize"),
        (("--authorize", "json:nothing"), 2, "cannot be imported (module 'json' has no attribute 'nothing')"),
        (("--authorize", "string:digits"), 2, "'string:digits' is nothing that can be called with a request"),
        (("--prefix", "/../x"), 1, "prefix is '/../x', which is no path"),
        ((), 1, "DATABASE_URL is not set"),
    ],
)
def test_what_it_cannot_be_told_is_a_sentence(words: tuple[str, ...], code: int, sentence: str) -> None:
    settings: dict[str, Any] = {"DATABASE_URL": "postgresql://localhost/shop"} if words else {}
    assert sentence in failed_in_one_sentence(outbox("dashboard", *words, **settings), code=code)


def test_a_key_that_is_too_short_and_a_database_that_is_away_are_sentences() -> None:
    away: dict[str, Any] = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing"}
    sentence = failed_in_one_sentence(outbox("dashboard", OUTBOX_DASHBOARD_KEY="short", **away))
    assert "key has fewer than 32 characters" in sentence
    assert "127.0.0.1" in failed_in_one_sentence(outbox("dashboard", "--port", "0", **away))
