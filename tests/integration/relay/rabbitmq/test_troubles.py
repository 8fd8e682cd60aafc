"""Whatever is wrong with RabbitMQ or the way to it is one sentence, without a password; alarms pass (R7, R14, T4)."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.brokers import PUBLISHED, Message, Outage, Refused, Topology
from outbox_kernel.infrastructure.brokers.rabbitmq import Address, rabbitmq
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.brokers.rabbitmq.outlet import RabbitOutlet
from outbox_kernel.infrastructure.errors import BadSetting
from tests.brokers import Broker
from tests.post import Post
from tests.proxy import proxy_before

PASSWORD = "s3cret-p@ss"
CERTIFICATES = Path(__file__).parents[3] / "certificates"


@asynccontextmanager
async def outlet_at(address: Address, topology: Topology) -> AsyncIterator[RabbitOutlet]:
    outlet = rabbitmq(address).outlet(topology.publishers[0], topology)
    assert isinstance(outlet, RabbitOutlet)
    try:
        yield outlet
    finally:
        await outlet.close()


def message(body: bytes = b"{}") -> Message:
    return Message(str(uuid4()), "bank.noted", body, {"event_type": "bank.noted"})


def url_with(broker: Broker, **changes: str) -> str:
    parts = urlsplit(broker.url)
    found = {"user": parts.username, "password": parts.password, "host": parts.hostname, "port": parts.port}
    netloc = "{user}:{password}@{host}:{port}".format(**{**found, **changes})
    return parts._replace(netloc=netloc, path=changes.get("path", parts.path)).geturl()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"password": "s3cret-p%40ss"},
            "does not let user 'guest' in: correct user or password in RABBITMQ_URL",
        ),
        (
            {"path": "/?auth=external"},
            "offers no login such as ?auth=… in RABBITMQ_URL asks for: leave it out, or",
        ),
        ({"path": "/nowhere"}, "does not let user 'guest' into vhost 'nowhere'"),
        ({"host": "127.0.0.1", "port": "1"}, "cannot be reached (Connection refused): start it"),
        ({"host": "nowhere.invalid"}, "cannot be reached (Name or service not known)"),
    ],
)
async def test_what_keeps_us_out_is_one_sentence_without_a_password(
    post: Post, changes: dict[str, str], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R14."""
    caplog.set_level(logging.DEBUG)
    async with outlet_at(Address.parse(url_with(post.broker, **changes)), post.topology) as outlet:
        outage = await outlet.prove()
    assert isinstance(outage, Outage)
    assert sentence in outage.reason
    assert "\n" not in outage.reason
    assert "s3cret" not in outage.reason + caplog.text + repr(outlet)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://user:s3cret@host/", "begins with http://, but only amqp:// and amqps:// serve"),
        ("user:s3cret@host", "is no URL of a RabbitMQ"),
        ("amqp://user:s3@cret@host/", "has more than one @ before the host: write %40"),
        ("amqp://user:s3/cret@host/", "has no number for its port"),
        ("amqp://user:s3cret@/", "names no host"),
        ("amqp://user:s3cret@host/a/b", "names a vhost with a / in it: write %2F"),
        ("amqp://user:s3cret@[host/", "is no URL of a RabbitMQ"),
        ("amqp://user:s3cret@..host../", "names a host '..host..', which is no host's name"),
        (
            f"amqp://user:s3cret@{'h' * 64}.example/",
            f"names a host '{'h' * 64}.example', which is no host's name",
        ),
        (
            "amqp://user:s3cret@host/?auth=magic",
            "names 'magic' as auth: write plain or external, or leave it out",
        ),
        (
            "amqps://user:s3cret@host/?cafile=/nowhere/ca.pem",
            "names '/nowhere/ca.pem' as cafile, which is no file",
        ),
    ],
)
def test_a_bad_url_is_one_sentence_without_a_password(url: str, sentence: str) -> None:
    """R15."""
    with pytest.raises(BadSetting) as refusal:
        Address.parse(url)
    assert str(refusal.value).startswith(f"RABBITMQ_URL {sentence}")
    assert "cret" not in str(refusal.value)


def test_an_address_says_where_and_who_and_never_how() -> None:
    found = Address.parse("amqps://ada:s3cret@broker.example/%2Fteam")
    assert (found.host, found.port, found.user, found.vhost, found.tls) == (
        "broker.example",
        5671,
        "ada",
        "/team",
        True,
    )
    assert "s3cret" not in f"{found} {found!r}"


async def test_a_broker_that_says_nothing_is_asked_once_for_all_who_wait(post: Post) -> None:
    """R12, T4: two hundred who ask it one after the other have their answers after a quarter of an hour."""
    link = Link(post.address, "tests", answer_seconds_max=0.5)
    outlet = RabbitOutlet(link, post.topology.publishers[0], post.topology)
    post.proxy.answers.clear()
    try:
        outcomes = await asyncio.gather(*(outlet.publish(message()) for _ in range(10)))
    finally:
        post.proxy.answers.set()
    asked = post.proxy.accepted
    again = await outlet.publish(message())
    await outlet.close()
    assert (len([each for each in outcomes if isinstance(each, Outage)]), asked) == (10, 1)
    assert again == PUBLISHED


async def test_what_is_no_rabbitmq_is_told_so(post: Post) -> None:
    """R14."""

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        address = Address.parse(f"amqp://guest:guest@127.0.0.1:{port}/")
        async with outlet_at(address, post.topology) as outlet:
            outage = await outlet.prove()
    assert isinstance(outage, Outage)
    assert "is no RabbitMQ, or wants TLS" in outage.reason


async def test_it_speaks_tls_by_its_url(post: Post) -> None:
    """T3: the certificate is checked, against the authority that the URL names."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(CERTIFICATES / "localhost.pem")
    parts = urlsplit(post.broker.url)
    async with proxy_before(parts.hostname or "", parts.port or 5672, served) as proxy:
        url = f"amqps://{parts.username}:{parts.password}@localhost:{proxy.here}{parts.path}"
        trusting = Address.parse(f"{url}?cafile={CERTIFICATES / 'authority.pem'}")
        async with outlet_at(trusting, post.topology) as outlet:
            assert await outlet.publish(message()) == PUBLISHED
        async with outlet_at(Address.parse(url), post.topology) as outlet:
            outage = await outlet.prove()
    assert isinstance(outage, Outage)
    assert "no TLS with RabbitMQ" in outage.reason
    assert "cafile" in outage.reason


async def test_an_alarm_is_an_outage_until_it_is_over(own_post: Post) -> None:
    """T4: connection.blocked is respected, and the same connection goes on."""
    control = own_post.broker.control
    assert control is not None
    async with outlet_at(own_post.address, own_post.topology) as outlet:
        assert await outlet.publish(message()) == PUBLISHED
        outlet.confirm_seconds_max = 1.0
        await asyncio.to_thread(control, "set_vm_memory_high_watermark", "0.0000001")
        try:
            outage = await outlet.publish(message())
            while not await outlet.link.blocked():
                outage = await outlet.publish(message())
            outage = await outlet.publish(message())
            assert isinstance(outage, Outage)
            assert "by an alarm of its memory or its disk" in outage.reason
        finally:
            await asyncio.to_thread(control, "set_vm_memory_high_watermark", "0.4")
        outlet.confirm_seconds_max = 10.0
        assert await outlet.prove() is None
        assert await outlet.publish(message()) == PUBLISHED


async def test_rights_that_are_revoked_are_an_outage_that_names_them(own_post: Post) -> None:
    """R7: nobody's message is to blame."""
    control = own_post.broker.control
    assert control is not None
    for words in (("add_user", "ada", "pass"), ("set_permissions", "-p", "/", "ada", ".*", ".*", ".*")):
        await asyncio.to_thread(control, *words)
    try:
        url = url_with(own_post.broker, user="ada", password="pass", path="/")
        async with outlet_at(Address.parse(url), own_post.topology) as outlet:
            assert await outlet.publish(message()) == PUBLISHED
            await asyncio.to_thread(control, "set_permissions", "-p", "/", "ada", ".*", "", ".*")
            await asyncio.to_thread(control, "close_all_connections", "the rights have changed")
            outage = await outlet.publish(message())
            assert isinstance(outage, Outage)
            assert "may not" in outage.reason
            await asyncio.to_thread(control, "set_permissions", "-p", "/", "ada", ".*", ".*", ".*")
            await asyncio.to_thread(control, "close_all_connections", "the rights have changed")
            assert await outlet.publish(message()) == PUBLISHED
    finally:
        await asyncio.to_thread(control, "delete_user", "ada")


async def test_what_amqp_cannot_write_is_refused(post: Post) -> None:
    """R7: it is the message's own fault."""
    async with outlet_at(post.address, post.topology) as outlet:
        odd = Message(str(uuid4()), "bank." + "x" * 300, b"{}", {})
        assert isinstance(await outlet.publish(odd), Refused)
        assert await outlet.publish(message()) == PUBLISHED
