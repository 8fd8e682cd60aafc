"""Who is not answered: strangers, what comes by a foreign name, forms of foreign pages (O3)."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from outbox_kernel.infrastructure.dashboard.security import (
    HEADERS,
    Refused,
    host_name,
    is_loopback,
    require_own_page,
    require_this_machine,
)


def asked(client: Any = ("127.0.0.1", 5), **headers: str) -> Request:
    headers.setdefault("host", "localhost:8001")
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "client": client, "headers": raw, "method": "POST", "path": "/"})


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "::1%lo"])
def test_an_address_of_this_machine_is_known(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["", "10.0.0.1", "::2", "::ffff:10.0.0.1", "::", "localhost", "127.0.0.1.evil.example"]
)
def test_another_address_is_told_from_it(address: str) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8001", "LOCALHOST", "127.0.0.1:80", "[::1]:8001", "ip6-localhost"]
)
def test_this_machine_is_answered_by_its_own_names(host: str) -> None:
    require_this_machine(asked(host=host))
    require_this_machine(asked(("::1", 5), host=host))


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "[", "10.0.0.1", "a b", "@"]
)
def test_a_name_that_only_leads_here_is_refused(host: str) -> None:
    with pytest.raises(Refused, match="is no name of this machine's own") as refused:
        require_this_machine(asked(host=host))
    assert (refused.value.status, refused.value.reason) == (403, "host")


@pytest.mark.parametrize("client", [None, ("10.1.2.3", 5), ("2001:db8::1", 5), ("testclient", 5)])
def test_a_stranger_is_refused(client: Any) -> None:
    with pytest.raises(Refused, match="only this machine itself is answered") as refused:
        require_this_machine(asked(client))
    assert refused.value.reason == "client"


@pytest.mark.parametrize("name", ["forwarded", "x_forwarded_for", "x_forwarded_host", "x_real_ip"])
def test_what_a_proxy_hands_on_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="that a proxy hands on") as refused:
        require_this_machine(asked(**{name: "127.0.0.1"}))
    assert refused.value.reason == "proxy"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "same-origin", "origin": "https://behind.a.proxy"},
        {"origin": "http://localhost:8001"},
    ],
)
def test_a_form_of_our_own_page_is_taken(headers: dict[str, str]) -> None:
    require_own_page(asked(**headers))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:9999"},
        {"sec_fetch_site": "cross-site", "origin": "http://localhost:8001"},
        {"sec_fetch_site": "same-site", "origin": "http://localhost:8001"},
        {"sec_fetch_site": "none"},
    ],
)
def test_a_form_of_another_page_or_of_none_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Refused, match="did not come from a page of the dashboard") as refused:
        require_own_page(asked(**headers))
    assert refused.value.reason == "origin"


def test_the_policy_lets_run_nothing_but_our_own_files() -> None:
    policy = HEADERS["content-security-policy"]
    assert policy == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert "unsafe" not in policy


def test_the_name_of_a_host_is_read_without_its_port() -> None:
    assert host_name("[::1]:80") == "::1"
    assert host_name("[") == ""
