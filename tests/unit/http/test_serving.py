"""What serves takes its address first, or says why it cannot."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outbox_kernel.infrastructure.addresses import AddressRefused, listen, url_of
from outbox_kernel.infrastructure.cli import main
from outbox_kernel.infrastructure.cli.api import http_settings
from tests.asking import KEY


def test_any_free_port_may_be_taken() -> None:
    with closing(listen("127.0.0.1", 0)) as listening:
        assert url_of(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_what_listens_everywhere_is_reached_here() -> None:
    with closing(listen("0.0.0.0", 0)) as listening:  # noqa: S104 - that is the case
        assert url_of(listening).startswith("http://127.0.0.1:")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_address_of_version_6_stands_in_brackets() -> None:
    with closing(listen("::1", 0)) as listening:
        assert url_of(listening).startswith("http://[::1]:")


def test_a_port_that_is_taken_is_told() -> None:
    with closing(listen("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(
            AddressRefused, match=f"port {port} of 127.0.0.1 is taken by another program: stop that"
        ):
            listen("127.0.0.1", port)


def test_a_host_that_is_nowhere_is_told() -> None:
    with pytest.raises(AddressRefused, match="the host 'no host' is unknown"):
        listen("no host", 0)
    # No label of a name may be as long.
    with pytest.raises(AddressRefused, match=r"the host 'h{80}' is unknown: correct --host"):
        listen("h" * 80, 0)
    with pytest.raises(AddressRefused, match=r"192\.0\.2\.1 is no address of this machine"):
        listen("192.0.2.1", 0)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [(errno.EACCES, "may not be taken by this user"), (errno.ENOBUFS, "cannot be taken (")],
)
def test_what_the_system_refuses_is_told(monkeypatch: pytest.MonkeyPatch, number: int, sentence: str) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(AddressRefused) as refused:
        listen("127.0.0.1", 80)
    assert sentence in str(refused.value)


# --- the commands, before they serve ---------------------------------------------------------------------


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("OUTBOX_API", "DATABASE_URL"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(words)
    told = capsys.readouterr()
    return ended.value.code, told.out, told.err


def test_without_a_key_nothing_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = said(capsys, "api")
    assert (code, out) == (1, "")
    assert error.startswith("error: OUTBOX_API_TOKEN_KEY is not set: write the public key")


def test_a_token_needs_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert "OUTBOX_API_TOKEN_KEY is not set" in said(capsys, "token", "ada")[2]


def test_a_token_is_printed_for_people_and_for_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_API_TOKEN_KEY", KEY)
    code, out, _ = said(capsys, "token", "ada")
    assert code == 0
    assert out.count(".") == 2
    assert '"token": "' in said(capsys, "token", "ada", "--json", "--hours", "1")[1]


@pytest.mark.parametrize("hours", ["inf", "nan", "1e300", "0", "-1", "87601"])
def test_a_token_has_an_end_that_a_clock_can_show(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, hours: str
) -> None:
    monkeypatch.setenv("OUTBOX_API_TOKEN_KEY", KEY)
    code, out, error = said(capsys, "token", "ada", f"--hours={hours}")
    assert (code, out) == (2, "")
    assert error.startswith("error: Invalid value for '--hours': ")
    assert "give a number above 0 and up to 87600: see" in error


@pytest.mark.parametrize("subject", ["", " ", "a\ud800", "a\nb", "u" * 201])
def test_no_token_is_made_that_the_service_would_refuse(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, subject: str
) -> None:
    monkeypatch.setenv("OUTBOX_API_TOKEN_KEY", KEY)
    code, out, error = said(capsys, "token", subject)
    assert (code, out) == (1, "")
    assert error.startswith("error: the token's subject (`sub`) is ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("key", [b"\xff" * 64, b"too short"])
def test_a_key_file_that_was_damaged_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, key: bytes
) -> None:
    (tmp_path / "token-key").write_bytes(key)
    (tmp_path / "token-key").chmod(0o600)
    code, out, error = said(capsys, "token", "ada", "--folder", str(tmp_path))
    assert (code, out) == (1, "")
    assert error.startswith(f"error: {tmp_path / 'token-key'} holds no key that serves: remove this file")


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_API_PORT", "81")
    monkeypatch.setenv("OUTBOX_API_RELAY", "yes")
    settings = http_settings(host=None, port=82, relay=None)
    assert (settings.host, settings.port, settings.relay) == ("127.0.0.1", 82, True)
