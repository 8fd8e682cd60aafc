"""No body of a megabyte keeps the service from others, or takes its memory (C7, R12, X4).

How busy the process was is measured in its own time, which others on this machine do not lengthen: nobody is kept
waiting for longer than that. The bound is generous; `outbox bench hostile` has the figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import settings

from benchmarks.hostile.bodies import BODIES, BYTES
from benchmarks.hostile.watching import Taken, sent
from tests.asking import bearer, problem
from tests.hostile.conftest import Api
from tests.hostile.shapes import ENDPOINTS, Shapes

BUSY_MS_MAX = 250.0
MEMORY_MB_MAX = 50.0
ANSWER_BYTES_MAX = 32 * 1024


@pytest.fixture(scope="module")
def taken(api: Api) -> Taken:
    """What the server takes, beyond what it has once it has answered each endpoint."""
    for method, path, example in ENDPOINTS:
        httpx.request(method, api.url + path, json=example, headers=bearer())
    return Taken(api.pid)


@pytest.fixture(scope="module")
def client(api: Api) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api.url, headers=bearer(), timeout=60) as made:
        yield made


@pytest.mark.parametrize("name", BODIES)
def test_what_is_made_to_hurt_does_not(api: Api, taken: Taken, name: str) -> None:
    path, make = BODIES[name]
    body = make()
    assert len(body) <= BYTES
    taken.begin()
    status, answer = sent(api.host, api.port, path, body, bearer())
    assert status < 500, answer[:1_000]
    assert len(answer) <= ANSWER_BYTES_MAX
    assert taken.busy_ms < BUSY_MS_MAX
    assert taken.mb < MEMORY_MB_MAX


def test_whatever_is_sent_is_answered_soon(
    api: Api, taken: Taken, client: httpx.Client, request: pytest.FixtureRequest
) -> None:
    """The long run (`make hostile`) sends ten times as many."""
    seed, rounds = request.config.getoption("--hypothesis-seed"), settings().max_examples // 2
    shapes = Shapes(str(seed))
    for number in range(rounds):
        method, path, body = shapes.request()
        told = f"{number} of OUTBOX_SEED={seed}: {method} {path} {body[:200]!r}"
        taken.begin()
        answer = client.request(method, path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code < 500, f"{told}: {answer.text}"
        if answer.status_code >= 400:
            problem(answer, answer.status_code)
        elif path == "/graphql":
            for error in answer.json().get("errors", ()):
                assert error.get("extensions", {}).get("status", 400) < 500, f"{told}: {error}"
        assert taken.busy_ms < BUSY_MS_MAX, told
        assert taken.mb < MEMORY_MB_MAX, told
    assert client.get("/health/ready").json() == {"status": "ready"}


HEADS = {
    "endless quote": {"content-type": 'application/json; a="' + ";" * 15_000},
    "parameters": {"content-type": "application/json" + "; a=b" * 3_000},
    "long trace": {"traceparent": "0" * 15_000, "tracestate": "a=b," * 3_700},
    "long token": {"authorization": "Bearer " + "a." * 7_000},
    "long id": {"x-request-id": "a" * 15_000},
    "many headers": {f"x-{number}": "" for number in range(1_500)},
    "cookies": {"cookie": "a=b;" * 3_700},
}


@pytest.mark.parametrize("name", HEADS)
def test_no_head_keeps_it_busy_either(taken: Taken, client: httpx.Client, name: str) -> None:
    taken.begin()
    query = "a&" * 200
    answer = client.post(f"/accounts?{query}", json={"email": "no address"}, headers=HEADS[name])
    assert 400 <= answer.status_code < 500
    assert taken.busy_ms < 50


def test_what_is_sent_again_and_again_is_not_kept(api: Api, taken: Taken) -> None:
    """What is refused would stay with the frames that it came through, a megabyte each."""
    for name in ("one_text", "few_members", "few_groups"):
        path, make = BODIES[name]
        body = make()
        for _ in range(60):
            sent(api.host, api.port, path, body, bearer())
        taken.begin()
        assert taken.mb < MEMORY_MB_MAX


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"[" * 65 + b"]" * 65, 400, "too_deep"),
        (json.dumps([0] * 10_001).encode(), 413, "too_many_values"),
        (json.dumps({str(number): 0 for number in range(30)}).encode(), 422, "invalid"),
    ],
)
def test_what_is_too_much_is_told(client: httpx.Client, body: bytes, status: int, kind: str) -> None:
    answer = client.post("/accounts", content=body, headers={"content-type": "application/json"})
    assert problem(answer, status)["type"] == kind
