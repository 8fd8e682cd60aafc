"""The gate: who asks, what a body may be, and that whatever goes wrong is a problem and nothing more."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Response
from lagom import Container

from outbox_kernel.infrastructure.http import (
    BearerTokens,
    CurrentPrincipal,
    HttpSettings,
    Principal,
    Provided,
    create_app,
)
from outbox_kernel.infrastructure.http.bodies import UNSTORABLE, again
from outbox_kernel.kernel.context import current_headers
from tests.asking import KEY, USER, asking, bearer, problem

JSON = {"content-type": "application/json"}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


# --- who asks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/accounts"),
        ("GET", f"/accounts/{USER}"),
        ("PATCH", f"/accounts/{USER}"),
        ("GET", "/no/such"),
    ],
)
async def test_without_a_token_nothing_is_answered(app: FastAPI, method: str, path: str) -> None:
    async with asking(app, {}) as stranger:
        answer = await stranger.request(method, path, content=b"not even read")
    assert problem(answer, 401)["type"] == "unauthenticated"
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_token_that_has_expired_is_a_problem(app: FastAPI) -> None:
    async with asking(app, bearer(lasts_seconds=-3600)) as late:
        assert "has expired" in problem(await late.get("/accounts"), 401)["detail"]


async def test_two_tokens_are_one_too_many(app: FastAPI) -> None:
    twice = [*bearer().items(), *bearer("brian").items()]
    async with asking(app, {}) as client:
        assert "two" in problem(await client.get("/accounts", headers=twice), 401)["detail"]


@pytest.mark.parametrize("path", ["/health/live", "/docs", "/openapi.json"])
async def test_health_and_documentation_need_no_token(app: FastAPI, path: str) -> None:
    async with asking(app, {}) as stranger:
        assert (await stranger.get(path)).status_code == 200


async def test_the_documentation_can_be_taken_away(container: Container) -> None:
    app = create_app(container, BearerTokens(KEY), HttpSettings(docs=False))
    async with asking(app) as client:
        for path in ("/docs", "/openapi.json"):
            assert problem(await client.get(path), 404)["type"] == "not_found"


async def test_a_web_socket_is_refused(app: FastAPI) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    await app({"type": "websocket", "path": "/graphql", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


# --- what is sent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"{", b"nothing", b"{'a': 1}", b"[" * 5_000, b"1" * 5_000])
async def test_what_is_no_json_is_a_problem(client: httpx.AsyncClient, body: bytes) -> None:
    problem(await client.post("/accounts", content=body, headers=JSON), 400)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [(b"[" * 9_000, "nested more than 64 levels deep"), (b"1" * 5_000, "has a number that is too long")],
    ids=["deep", "long"],
)
async def test_json_that_no_program_reads_is_not_called_something_else(
    client: httpx.AsyncClient, body: bytes, sentence: str
) -> None:
    refused = problem(await client.post("/accounts", content=body, headers=JSON), 400)
    assert sentence in refused["detail"]


@pytest.mark.parametrize("body", [b'{"email": "\xff"}', '{"email": "ada@example.org"}'.encode("utf-16")])
async def test_what_is_not_in_utf_8_is_a_problem(client: httpx.AsyncClient, body: bytes) -> None:
    refused = problem(await client.post("/accounts", content=body, headers=JSON), 400)
    assert "not in UTF-8" in refused["detail"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"email": "a\0da@example.org"}, "#/email"),
        ({"email": "a\ud800da@example.org"}, "#/email"),
        ({"email": ["x", {"y": "\udfff"}]}, "#/email/1/y"),
        ({"a\0": "x"}, "#"),
    ],
)
async def test_text_that_nothing_could_store_is_told_where_it_stands(
    client: httpx.AsyncClient, body: Any, pointer: str
) -> None:
    answer = await client.post("/accounts", content=json.dumps(body), headers=JSON)
    assert problem(answer, 422)["errors"] == [{"pointer": pointer, "detail": UNSTORABLE}]


async def test_a_pair_of_surrogates_is_a_character(client: httpx.AsyncClient) -> None:
    body = json.dumps({"email": "\N{OWL}@example.org"})
    assert "\\ud83e" in body
    assert (await client.post("/accounts", content=body, headers=JSON)).status_code == 201


async def test_broken_json_with_a_suspicious_escape_is_still_broken_json(client: httpx.AsyncClient) -> None:
    answer = await client.post("/accounts", content=b'{"email": "\\u0000"', headers=JSON)
    assert problem(answer, 400)["type"] == "malformed_json"


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        f"application/json; charset*{'9' * 5_000}=utf-8",
        'application/json; a="' + ";" * 15_000,
        "",
        "json",
    ],
)
async def test_a_body_of_another_type_is_a_problem(client: httpx.AsyncClient, kind: str) -> None:
    answer = await client.post("/accounts", content=b'{"email": "a@b.c"}', headers={"content-type": kind})
    assert problem(answer, 415)["type"] == "not_json"


@pytest.mark.parametrize("kind", ["application/json; charset=UTF-8", "application/merge-patch+json"])
async def test_json_has_many_names(client: httpx.AsyncClient, kind: str) -> None:
    answer = await client.post("/accounts", content=b'{"email": "a@b.c"}', headers={"content-type": kind})
    assert answer.status_code == 201


async def test_a_body_that_is_too_large_is_a_problem(client: httpx.AsyncClient) -> None:
    answer = await client.post("/accounts", content=b" " * 100_001, headers=JSON)
    assert problem(answer, 413)["type"] == "too_large"


async def test_a_body_that_does_not_say_how_large_it_is_has_the_same_limit(client: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 10_000

    problem(await client.post("/accounts", content=pieces(), headers=JSON), 413)


async def test_a_length_that_nobody_could_count_is_too_large(client: httpx.AsyncClient) -> None:
    answer = await client.post("/accounts", content=b"{}", headers={**JSON, "content-length": "9" * 5_000})
    assert problem(answer, 413)["type"] == "too_large"


async def test_a_body_may_come_in_pieces(client: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"email": "ad'
        yield b'a@example.org"}'

    assert (await client.post("/accounts", content=pieces(), headers=JSON)).status_code == 201


async def test_a_member_that_nobody_declared_is_refused(client: httpx.AsyncClient) -> None:
    refused = problem(await client.post("/accounts", json={"email": "a@b.c", "a/b~": 1}), 422)
    assert [each["pointer"] for each in refused["errors"]] == ["#/a~1b~0"]


async def test_what_was_sent_is_not_sent_back(client: httpx.AsyncClient) -> None:
    answer = await client.post("/accounts", json={"email": 7, "role": "the secret"})
    problem(answer, 422)
    assert "the secret" not in answer.text


async def test_a_method_that_is_not_served_is_a_problem(client: httpx.AsyncClient) -> None:
    for path, methods in (("/accounts", "POST"), (f"/accounts/{USER}", "GET, PATCH")):
        answer = await client.delete(path)
        assert problem(answer, 405)["type"] == "method_not_allowed"
        assert answer.headers["allow"] == methods


async def test_who_hangs_up_is_not_waited_for(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    headers = [(name.lower().encode(), value.encode()) for name, value in bearer().items()]
    scope = {"type": "http", "method": "POST", "path": "/accounts", "headers": headers, "query_string": b""}
    with caplog.at_level(logging.INFO, "outbox.http"):
        await app(scope, receive, send)
    assert sent == []
    assert caplog.records[-1].__dict__["status"] == 499


async def test_after_the_body_comes_what_came_after_it() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    received = again(b"{}", receive)
    assert await received() == {"type": "http.request", "body": b"{}", "more_body": False}
    assert await received() == {"type": "http.disconnect"}


# --- what an endpoint has, and what may happen in it -----------------------------------------------------


def serving(container: Container, router: APIRouter, **settings: Any) -> FastAPI:
    app = create_app(container, BearerTokens(KEY), HttpSettings(**settings))
    app.include_router(router)
    return app


@pytest.fixture
def router() -> APIRouter:
    made = APIRouter()

    @made.get("/context")
    async def context(
        me: CurrentPrincipal, again: Annotated[Principal, Provided(Principal)]
    ) -> dict[str, Any]:
        assert me is again
        return {"user": me.user_id, "headers": dict(current_headers())}

    @made.get("/broken")
    async def broken() -> None:
        raise RuntimeError("the password is hunter2")

    @made.get("/broken-late")
    async def broken_late(response: Response) -> Response:
        class Breaks(Response):
            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                raise RuntimeError("too late")

        return Breaks()

    @made.get("/slow")
    async def slow() -> None:
        await asyncio.Event().wait()

    @made.get("/out-of-time")
    async def out_of_time() -> None:
        raise TimeoutError("something else had a limit")

    return made


async def test_what_is_recorded_carries_the_request_and_the_user(
    container: Container, router: APIRouter
) -> None:
    async with asking(serving(container, router)) as client:
        answer = await client.get("/context", headers={"x-request-id": "mine-1"})
        assert answer.headers["x-request-id"] == "mine-1"
        headers = {"request_id": "mine-1", "correlation_id": "mine-1", "user_id": USER}
        assert answer.json() == {"user": USER, "headers": headers}
    assert current_headers() == {}


@pytest.mark.parametrize("given", ["", "has space", "a" * 129, 'quote"'])
async def test_a_request_without_a_proper_id_is_given_one(
    container: Container, router: APIRouter, given: str
) -> None:
    async with asking(serving(container, router)) as client:
        answer = await client.get("/context", headers={"x-request-id": given})
    assert UUID(answer.headers["x-request-id"]).version == 7


@pytest.mark.parametrize(
    ("sent", "carried"),
    [
        ({"traceparent": TRACE, "tracestate": "a=b"}, {"traceparent": TRACE, "tracestate": "a=b"}),
        ({"traceparent": TRACE, "tracestate": "a" * 8_193}, {"traceparent": TRACE}),
        ({"traceparent": "rubbish"}, {}),
        ({"traceparent": "rubbish", "tracestate": "a=b"}, {}),
        ({"tracestate": "a=b"}, {}),
    ],
)
async def test_a_trace_is_carried_on_if_it_is_one(
    container: Container, router: APIRouter, sent: dict[str, str], carried: dict[str, str]
) -> None:
    async with asking(serving(container, router)) as client:
        headers = (await client.get("/context", headers=sent)).json()["headers"]
    assert {name: value for name, value in headers.items() if name.startswith("trace")} == carried


async def test_what_breaks_is_a_problem_that_tells_nothing_and_a_log_that_tells_all(
    container: Container, router: APIRouter, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(serving(container, router)) as client:
        answer = await client.get("/broken")
    assert problem(answer, 500)["type"] == "unexpected"
    assert "hunter2" not in answer.text
    (failure,) = (each for each in caplog.records if each.levelname == "ERROR")
    assert failure.exc_info
    assert "hunter2" in str(failure.exc_info[1])
    assert failure.__dict__["request_id"] == answer.headers["x-request-id"]


async def test_what_breaks_in_the_middle_of_an_answer_cuts_it(
    container: Container, router: APIRouter
) -> None:
    async with asking(serving(container, router)) as client:
        with pytest.raises(RuntimeError, match="too late"):
            await client.get("/broken-late")


async def test_what_takes_too_long_is_given_up(
    container: Container, router: APIRouter, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(serving(container, router, request_seconds_max=0.01)) as client:
        assert problem(await client.get("/slow"), 503)["type"] == "too_slow"
    assert "cannot be served now: the answer took longer than 0.01 s and was given up" in caplog.text


async def test_a_time_limit_of_something_else_is_not_the_requests(
    container: Container, router: APIRouter
) -> None:
    async with asking(serving(container, router)) as client:
        assert problem(await client.get("/out-of-time"), 500)["type"] == "unexpected"


async def test_each_request_leaves_a_line_without_its_query(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "outbox.http"):
        await client.get(f"/accounts/{USER}?secret=hunter2")
    (line,) = (each for each in caplog.records if each.name == "outbox.http")
    told = line.__dict__
    assert (told["method"], told["path"], told["status"]) == ("GET", f"/accounts/{USER}", 404)
    assert told["user_id"] == USER
    assert re.fullmatch("[0-9a-f-]{36}", told["request_id"])
    assert told["milliseconds"] >= 0
    assert "hunter2" not in str(told)
