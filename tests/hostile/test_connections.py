"""Connections that never ask keep nobody out, and none is waited for without end (R12)."""

from __future__ import annotations

import asyncio
import http.client
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from typing import Any

import pytest

from outbox_kernel.infrastructure.addresses import listen
from outbox_kernel.infrastructure.http import HttpSettings
from outbox_kernel.infrastructure.http.connection import Connection
from outbox_kernel.infrastructure.http.connections import Connections, room_for
from outbox_kernel.infrastructure.http.limits import (
    CONNECTIONS_MIN,
    HEAD_BYTES_MAX,
    LINGER_SECONDS,
    SLICE_BYTES,
)
from outbox_kernel.infrastructure.http.serving import ApiServer
from tests.asking import bearer
from tests.hostile.conftest import Api, serving

HALF_OPEN, HEALTH_REQUESTS = 2_000, 75
SECONDS_MAX = 30.0
HALF_A_HEAD = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"
HEALTH = HALF_A_HEAD + b"\r\n"
BODY_BYTES = 1_000_000


@pytest.fixture(autouse=True)
def files() -> Iterator[None]:
    """Let this process open as many files as it may."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def connected(api: Api) -> socket.socket:
    return socket.create_connection((api.host, api.port), SECONDS_MAX)


def is_healthy(api: Api) -> bool:
    connection = http.client.HTTPConnection(api.host, api.port, timeout=SECONDS_MAX)
    with closing(connection):
        connection.request("GET", "/health/live")
        return connection.getresponse().status == 200


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until it is closed, or cut."""
    found = b""
    try:
        while more := connection.recv(65_536):
            found += more
    except ConnectionResetError:
        pass
    return found


def post(*headers: str) -> bytes:
    lines = ("POST /accounts HTTP/1.1", "Host: x", "Content-Type: application/json", *headers)
    return "\r\n".join([*lines, "", ""]).encode()


AUTHORIZED = "Authorization: " + bearer()["Authorization"]


# --- over the wire ---------------------------------------------------------------------------------------


def test_two_thousand_that_send_half_a_request_keep_nobody_out(api: Api) -> None:
    with ExitStack() as stack:
        for _ in range(HALF_OPEN):
            stack.enter_context(connected(api)).sendall(HALF_A_HEAD)
        assert [is_healthy(api) for _ in range(HEALTH_REQUESTS)] == [True] * HEALTH_REQUESTS
        told = api.serving.wait_for("connections were cut")
        assert told["action"] == "api.connections.cut"
        assert told["for_others"] >= HALF_OPEN - told["most"]


@pytest.fixture(scope="module")
def hasty(database: str) -> Iterator[Api]:
    """A server that waits for little."""
    settings = {"OUTBOX_API_HEAD_SECONDS": "0.5", "OUTBOX_API_REQUEST_SECONDS": "0.5"}
    with serving(database, **settings) as found:
        yield found


@pytest.mark.parametrize(
    "sent", [b"", HALF_A_HEAD, HEALTH + HALF_A_HEAD], ids=["nothing", "half", "one and a half"]
)
def test_a_head_that_does_not_come_is_not_waited_for(hasty: Api, sent: bytes) -> None:
    with connected(hasty) as connection:
        connection.sendall(sent)
        answers = rest_of(connection)
    assert answers.count(b"HTTP/1.1 200 OK") == sent.count(HEALTH)


def test_those_that_were_late_are_told_of_in_the_log(hasty: Api) -> None:
    assert hasty.serving.wait_for("connections were cut")["late"] >= 1


def test_a_body_that_does_not_come_is_told_and_not_waited_for(hasty: Api) -> None:
    with connected(hasty) as connection:
        connection.sendall(post(AUTHORIZED, "Content-Length: 100") + b'{"email"')
        assert rest_of(connection).startswith(b"HTTP/1.1 503 ")


def test_who_reads_no_answer_is_not_waited_for(hasty: Api) -> None:
    with connected(hasty) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        asked = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
        # As many as it takes until the server cannot write any more, and so reads no more.
        with pytest.raises(ConnectionError):
            for _ in range(100_000):
                connection.sendall(asked * 10)


@pytest.mark.parametrize("headers", [(), (AUTHORIZED, "X: too large")], ids=["no token", "too large"])
def test_who_is_refused_before_the_body_is_read_hears_of_it(api: Api, headers: tuple[str, ...]) -> None:
    """Cut in the middle of sending, they would read nothing at all."""
    length = 2 * BODY_BYTES if headers else BODY_BYTES
    status = b"413" if headers else b"401"
    for _ in range(20):
        with connected(api) as connection:
            connection.sendall(post(*headers, f"Content-Length: {length}"))
            connection.sendall(b" " * length)
            answer = rest_of(connection)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"connection: close" in answer


def test_requests_in_one_go_are_answered_one_after_the_other(api: Api) -> None:
    with connected(api) as connection:
        connection.sendall(HEALTH * 500 + HEALTH.replace(b"Host", b"Connection: close\r\nHost"))
        assert rest_of(connection).count(b"HTTP/1.1 200 OK") == 501


def test_a_large_body_arrives_whole_whatever_its_pieces(api: Api) -> None:
    body = b'{"email": "no address"' + b" " * (BODY_BYTES - 23) + b"}"
    for size in (SLICE_BYTES - 1, SLICE_BYTES, 100_000, BODY_BYTES):
        with connected(api) as connection:
            connection.sendall(post(AUTHORIZED, "Connection: close", f"Content-Length: {len(body)}"))
            for start in range(0, len(body), size):
                connection.sendall(body[start : start + size])
            assert b"urn:problem:invalid_email" in rest_of(connection)


# --- in this process -------------------------------------------------------------------------------------


class Spoken(asyncio.Protocol):
    """A server's protocol that only takes note."""

    def __init__(self) -> None:
        self.pieces: list[int] = []
        self.transport: Any = None
        self.ended = False
        self.writing = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(len(data))

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True

    def pause_writing(self) -> None:
        self.writing = False

    def resume_writing(self) -> None:
        self.writing = True


class Hesitant(Spoken):
    """One that holds up what comes, and goes on at once."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.pause_reading()
        self.transport.resume_reading()


class Wire(asyncio.Transport):
    """A transport that only takes note."""

    def __init__(self, address: str = "192.0.2.1") -> None:
        super().__init__({"peername": (address, 7)})
        self.done: list[str] = []

    def is_closing(self) -> bool:
        return bool({"close", "abort"} & set(self.done))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.done.append("write_eof")

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("abort")

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")


def crowd(**settings: Any) -> Connections:
    return Connections(HttpSettings(**settings))


def arrives(
    found: Connections, address: str = "192.0.2.1", spoken: Spoken | None = None
) -> tuple[Connection, Spoken, Wire]:
    spoken, wire = spoken or Spoken(), Wire(address)
    connection = found.protocol(lambda: spoken)()
    connection.connection_made(wire)
    return connection, spoken, wire


async def turns(number: int = 200) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_whoever_has_the_most_that_wait_loses_the_oldest() -> None:
    found = crowd(connections_max=CONNECTIONS_MIN)
    loners = [arrives(found, f"198.51.100.{number}") for number in range(3)]
    many = [arrives(found) for _ in range(CONNECTIONS_MIN - 3)]
    arrives(found, "203.0.113.9")
    arrives(found, "203.0.113.9")
    assert [wire.done for *_, wire in many[:3]] == [["abort"], ["abort"], []]
    assert all(wire.done == [] for *_, wire in loners)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
async def test_an_address_of_version_6_is_a_household(one: str, other: str, *, same: bool) -> None:
    found = crowd()
    assert (arrives(found, one)[0].address == arrives(found, other)[0].address) is same


async def test_where_all_are_at_work_whoever_comes_next_is_refused() -> None:
    found = crowd(connections_max=CONNECTIONS_MIN)
    for _ in range(CONNECTIONS_MIN):
        arrives(found)[0].begin(has_body=False)
    late, spoken, wire = arrives(found)
    assert wire.done == ["abort"]
    late.data_received(b"anything")
    late.eof_received()
    late.connection_lost(None)
    assert spoken.transport is None
    assert not spoken.ended


async def test_one_that_has_gone_makes_room() -> None:
    found = crowd(connections_max=CONNECTIONS_MIN)
    everybody = [arrives(found)[0] for _ in range(CONNECTIONS_MIN)]
    everybody[5].connection_lost(None)
    assert arrives(found)[2].done == []


async def test_what_comes_at_once_is_handed_on_slice_by_slice() -> None:
    connection, spoken, _ = arrives(crowd())
    connection.begin(has_body=True)
    connection.data_received(b" " * (3 * SLICE_BYTES + 1))
    assert spoken.pieces == [SLICE_BYTES]
    await turns()
    assert spoken.pieces == [SLICE_BYTES, SLICE_BYTES, SLICE_BYTES, 1]


async def test_while_a_slice_is_due_nothing_more_is_read() -> None:
    connection, spoken, wire = arrives(crowd())
    connection.begin(has_body=True)
    connection.data_received(b"one")
    connection.data_received(b"two")
    assert (spoken.pieces, wire.done) == ([3], ["pause"])
    await turns()
    assert (spoken.pieces, wire.done) == ([3, 3], ["pause", "resume"])


async def test_what_the_server_holds_up_waits() -> None:
    connection, spoken, wire = arrives(crowd())
    connection.begin(has_body=True)
    spoken.transport.pause_reading()
    connection.data_received(b"held")
    await turns()
    assert (spoken.pieces, wire.done) == ([], ["pause"])
    spoken.transport.resume_reading()
    await turns()
    assert (spoken.pieces, wire.done) == ([4], ["pause", "resume"])


async def test_who_hesitates_is_handed_each_slice_once() -> None:
    connection, spoken, _ = arrives(crowd(), spoken=Hesitant())
    connection.begin(has_body=True)
    connection.data_received(b" " * (2 * SLICE_BYTES))
    await turns()
    assert spoken.pieces == [SLICE_BYTES, SLICE_BYTES]


async def test_that_nothing_can_be_written_is_told_on() -> None:
    connection, spoken, _ = arrives(crowd())
    connection.pause_writing()
    assert spoken.writing is False
    connection.resume_writing()
    assert spoken.writing is True


async def test_a_socket_of_this_machine_has_no_address() -> None:
    connection = crowd().protocol(Spoken)()
    wire = Wire()
    wire._extra["peername"] = ""  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio has it
    connection.connection_made(wire)
    assert connection.address == ""


async def test_a_head_has_a_limit_whatever_the_parser_says() -> None:
    connection, spoken, wire = arrives(crowd())
    connection.data_received(b"x" * (2 * HEAD_BYTES_MAX))
    await turns()
    assert wire.done[-1] == "abort"
    assert sum(spoken.pieces) <= HEAD_BYTES_MAX


async def test_who_is_still_sending_when_answered_has_a_moment_and_is_not_read() -> None:
    connection, spoken, wire = arrives(crowd())
    connection.begin(has_body=True)
    spoken.transport.close()
    spoken.transport.close()
    assert wire.done == ["write_eof"]
    assert spoken.transport.is_closing()
    connection.end()
    connection.data_received(b"more")
    await turns()
    assert spoken.pieces == []
    # When the moment is over.
    connection.cut("late")
    assert wire.done == ["write_eof", "abort"]


async def test_what_came_before_the_end_is_dropped_with_it() -> None:
    connection, spoken, wire = arrives(crowd())
    connection.begin(has_body=False)
    connection.data_received(b" " * (2 * SLICE_BYTES))
    spoken.transport.close()
    await turns()
    assert spoken.pieces == [SLICE_BYTES]
    assert wire.done[-1] == "close"
    connection.connection_lost(None)
    assert spoken.ended


async def test_a_deadline_cuts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    set_for: list[float] = []
    loop = asyncio.get_running_loop()
    real = loop.call_later

    def call_later(seconds: float, call: Callable[..., Any], *arguments: Any) -> asyncio.TimerHandle:
        set_for.append(seconds)
        return real(seconds, call, *arguments)

    monkeypatch.setattr(loop, "call_later", call_later)
    connection, spoken, _ = arrives(crowd(head_seconds=3, request_seconds_max=20))
    connection.begin(has_body=True)
    connection.have_body()
    connection.end()
    connection.begin(has_body=True)
    spoken.transport.close()
    assert set_for == [3, 21, 3, 21, LINGER_SECONDS]


# --- as many files as it may open ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("soft", "hard", "room", "raised_to"),
    [
        (100_000, 100_000, 1_000, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1_000, None),
        (1_024, 100_000, 1_000, 1_288),
        (1_024, resource.RLIM_INFINITY, 1_000, 1_288),
        (1_024, 1_024, 736, 1_024),
        (256, 256, CONNECTIONS_MIN, 256),
    ],
)
def test_there_are_no_more_connections_than_files_may_be_open(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    room: int,
    raised_to: int | None,
) -> None:
    made: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: made.append(limits[0]))
    assert room_for(1_000) == room
    assert made == [raised_to] * (raised_to is not None)
    assert ("raise its limit (`ulimit -n`)" in caplog.text) is (room < 1_000)


# --- on the loop of the standard library -----------------------------------------------------------------


@asynccontextmanager
async def served(app: Any, **settings: Any) -> AsyncIterator[int]:
    with closing(listen("127.0.0.1", 0)) as listening:
        server, started = ApiServer(app, HttpSettings(**settings)), asyncio.Event()
        serving = asyncio.create_task(server.serve(listening, started.set))
        await started.wait()
        yield listening.getsockname()[1]
        server.stop()
        await serving


async def lifespan_or(scope: Any, receive: Any, send: Any, answer: Callable[[Any, Any], Any]) -> None:
    if scope["type"] != "lifespan":
        await answer(receive, send)
        return
    for step in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{step}.complete"})


async def test_a_request_at_work_is_waited_for_longer_than_its_head() -> None:
    """It is known by its task, which the server begins while it is handed the head: another server might not."""
    go = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def answer(receive: Any, send: Any) -> None:
            await go.wait()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

        await lifespan_or(scope, receive, send, answer)

    async with served(app, head_seconds=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEALTH)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(1)
        go.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert await reader.read() is not None  # and what has been answered is closed, once its time is over
        writer.close()
