"""What browsers keep for us is ours when it comes back, or nothing (O3)."""

from __future__ import annotations

from http.cookies import SimpleCookie

import pytest
from starlette.requests import Request
from starlette.responses import Response

from outbox_kernel.infrastructure.dashboard.operator import Operator
from outbox_kernel.infrastructure.dashboard.sealing import (
    NOTICE,
    SESSION,
    THEME,
    Notice,
    Seal,
    keep_theme,
)
from outbox_kernel.infrastructure.dashboard.security import Refused
from outbox_kernel.infrastructure.errors import ArgumentRefused

KEY = "a key of the tests that is long enough to be one"
ADA, EVE = Operator("ada"), Operator("eve")


def asked(scheme: str = "http", root: str = "", **cookies: str) -> Request:
    said = "; ".join(f"{name}={value}" for name, value in cookies.items())
    scope = {
        "type": "http",
        "scheme": scheme,
        "root_path": root,
        "path": "/",
        "query_string": b"",
        "headers": [(b"cookie", said.encode())],
        "server": ("localhost", 80),
    }
    return Request(scope)


def kept(response: Response) -> SimpleCookie:
    jar: SimpleCookie = SimpleCookie()
    for name, value in response.raw_headers:
        if name == b"set-cookie":
            jar.load(value.decode())
    return jar


@pytest.fixture
def seal() -> Seal:
    return Seal(KEY)


def session_cookie(seal: Seal, session: str) -> str:
    response = Response()
    seal.keep_session(response, asked(), session)
    return kept(response)[SESSION].value


def test_a_session_comes_back_as_it_was(seal: Seal) -> None:
    session = seal.new_session()
    assert session != seal.new_session()
    assert seal.session_of(asked(**{SESSION: session_cookie(seal, session)})) == session


@pytest.mark.parametrize("cookie", ["", "x", "x.", ".x", "x.y", "ü"])
def test_a_session_that_we_did_not_make_is_none(seal: Seal, cookie: str) -> None:
    assert seal.session_of(asked(**{SESSION: cookie})) is None


def test_a_session_of_another_key_is_none(seal: Seal) -> None:
    theirs = session_cookie(Seal(), "abc")
    assert seal.session_of(asked(**{SESSION: theirs})) is None


def test_processes_with_one_key_know_each_others_sessions(seal: Seal) -> None:
    assert Seal(KEY).session_of(asked(**{SESSION: session_cookie(seal, "abc")})) == "abc"


def test_a_token_is_of_one_session_and_one_operator(seal: Seal) -> None:
    request = asked(**{SESSION: session_cookie(seal, "abc")})
    seal.require_token(request, seal.token("abc", ADA), ADA)
    for given, operator in (
        ("", ADA),
        (seal.token("abd", ADA), ADA),
        (seal.token("abc", EVE), ADA),
        (Seal().token("abc", ADA), ADA),
    ):
        with pytest.raises(Refused, match="this form is of another session") as refused:
            seal.require_token(request, given, operator)
        assert refused.value.reason == "token"


def test_without_a_session_no_token_is_good(seal: Seal) -> None:
    with pytest.raises(Refused):
        seal.require_token(asked(), seal.token("abc", ADA), ADA)


def test_parts_that_are_cut_elsewhere_are_signed_otherwise(seal: Seal) -> None:
    assert seal.sign("ab", "c") != seal.sign("a", "bc")


def test_a_notice_is_told_once(seal: Seal) -> None:
    response = Response()
    seal.keep_notice(response, asked(), Notice("3 deliveries retried — “ü”", is_good=False))
    cookie = kept(response)[NOTICE]
    assert cookie["max-age"] == "60"
    request = asked(**{NOTICE: cookie.value})
    assert seal.notice_of(request) == Notice("3 deliveries retried — “ü”", is_good=False)
    seal.forget_notice(response, request)
    assert kept(response)[NOTICE].value == ""


@pytest.mark.parametrize("cookie", ["", "x.y", "W10.x"])
def test_a_notice_that_we_did_not_write_is_not_told(seal: Seal, cookie: str) -> None:
    assert seal.notice_of(asked(**{NOTICE: cookie})) is None


@pytest.mark.parametrize(("scheme", "secure"), [("http", ""), ("https", True)])
def test_cookies_are_for_our_path_and_for_no_script(seal: Seal, scheme: str, secure: object) -> None:
    request, response = asked(scheme, "/ops/outbox"), Response()
    seal.keep_session(response, request, "abc")
    keep_theme(response, request, "dark")
    for name in (SESSION, THEME):
        cookie = kept(response)[name]
        assert cookie["path"] == "/ops/outbox"
        assert cookie["httponly"] is True
        assert cookie["samesite"] == "lax"
        assert cookie["secure"] == secure


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ArgumentRefused, match="fewer than 32 characters"):
        Seal("short")
