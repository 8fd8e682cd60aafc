"""RabbitMQ's URL: what is mistyped is a sentence, and what is right means to the client what it says (R12, R14)."""

from __future__ import annotations

import ssl
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest
from aiormq.connection import Connection
from yarl import URL

from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.errors import BadSetting

CERTIFICATES = Path(__file__).parents[2] / "certificates"
AUTHORITY = CERTIFICATES / "authority.pem"


def refusal(url: str) -> str:
    with pytest.raises(BadSetting) as refused:
        Address.parse(url)
    told = str(refused.value)
    assert told.startswith("RABBITMQ_URL ")
    assert "\n" not in told
    return told.removeprefix("RABBITMQ_URL ")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("amqp://user:s3#cret@host/", "has a # in it: write %23 for that of a password"),
        ("amqp://user:s3cret@host/#cret", "has a # in it"),
        ("amqp://user:s3cret@host/#", "has a # in it"),
        ("amqp://user:s3\\cret@host/", "has a \\ in it: write %5C for that of a password"),
        (
            "amqp://user:5?cret@host/",
            "has an @ behind the host: write %40 for it, and %2F or %3F for a / or ?",
        ),
        ("amqp://user:5/cret@host", "has an @ behind the host"),
        ("amqp://user:s3cret\t@host/", "has a character in it that cannot be seen"),
        ("amqp://user:s3cret@host/\udcff", "has bytes in it that are no UTF-8"),
        ("amqp://user:s3cret%FF@host/", "has bytes in it that are no UTF-8"),
        ("amqp://user:s3cret@host/%FF", "has bytes in it that are no UTF-8"),
        ("amqp://user:s3cret@host/?cafile=\udcff", "has bytes in it that are no UTF-8"),
        ("amqp://user:s3cret@host:0/", "has no number for its port"),
        (f"amqp://user:s3cret@host/{'v' * 256}", "names a vhost of more than 255 bytes"),
        (f"amqp://user:s3cret@host/{'é' * 128}", "names a vhost of more than 255 bytes"),
        ("amqp://user:s3cret@host/a%252Fb", "names a vhost 'a%2Fb', which the client cannot write"),
        ("amqp://user:s3cret@host/..", "names a vhost '..', which the client cannot write"),
        ("amqp://user:s3cret@host/%2E", "names a vhost '.', which the client cannot write"),
    ],
)
def test_what_would_be_read_otherwise_is_refused_and_no_part_of_a_password_is_shown(
    url: str, sentence: str
) -> None:
    """R14, R15."""
    told = refusal(url)
    assert told.startswith(sentence)
    assert "cret" not in told


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("heartbeat=10s", "names '10s' as heartbeat: write a whole number of seconds from 1 to 65534"),
        ("heartbeat=-1", "names '-1' as heartbeat"),
        ("heartbeat=1_0", "names '1_0' as heartbeat"),
        ("heartbeat=%D9%A1", "names '\u0661' as heartbeat"),
        ("heartbeat=65535", "names '65535' as heartbeat"),
        ("heartbeat=" + "9" * 5_000, f"names '{'9' * 40}' as heartbeat"),
        ("heartbeat=0", "asks for no heartbeat, by which a connection that is gone without a word is never"),
        ("heartbeat", "names heartbeat without a value: write heartbeat=…, or leave it out"),
        ("heartbeat=1&heartbeat=2", "names an option twice behind its ?: leave one of them out"),
        (
            "hartbeat=1",
            "names 'hartbeat' behind its ?, which is not supported here: correct it to one of auth, heart",
        ),
        ("cacertfile=/etc/ca.pem", "names 'cacertfile' behind its ?, which is not supported here"),
        ("timeout=3", "names 'timeout' behind its ?, which is not supported here"),
        ("name=ours", "names 'name' behind its ?, which is not supported here"),
        ("capath=/nowhere", "names '/nowhere' as capath, which is no folder here: correct the path"),
        ("capath=", "names capath without a value"),
        ("certfile=" + "x" * 5_000, "names 'xxx"),
        ("keyfile=%00", "names '\\x00' as keyfile, which is no file here"),
        (f"keyfile={AUTHORITY}", "names a keyfile and no certfile: write both, or leave it out"),
        (
            f"cafile={__file__}",
            "names a cafile that cannot be used (no certificate or crl found): name a file",
        ),
        (
            f"certfile={AUTHORITY}",
            "names a certfile or keyfile that cannot be used (not understood): name files in PEM",
        ),
        ("cadata=abc", "has a cadata that is no certificate: write the base64 of a certificate in DER"),
        ("cadata=%3D%3D", "has a cadata that is no certificate"),
        ("cadata=c29tZXRoaW5n", "has a cadata that is no certificate"),
        (
            "no_verify_ssl=false",
            "names 'false' as no_verify_ssl: write 0, or 1 for a broker whose certificate",
        ),
        ("auth=", "names auth without a value"),
    ],
)
def test_an_option_that_would_not_do_what_it_says_is_refused_by_name(query: str, sentence: str) -> None:
    """R12, R14: the client takes most of them for nothing at all, or fails over them at its first connection."""
    assert refusal(f"amqps://user:pass@host/?{query}").startswith(sentence)


@pytest.mark.parametrize("name", ["cafile", "capath", "cadata", "certfile", "keyfile", "no_verify_ssl"])
def test_what_is_for_tls_is_refused_where_nothing_is_encrypted(name: str) -> None:
    """R14."""
    assert refusal(f"amqp://host/?{name}=1") == (
        f"names {name}, which is for TLS: write amqps://, or leave it out"
    )


async def test_what_is_right_reaches_the_client_as_it_was_meant() -> None:
    """R12, R15: a heartbeat above all, which there always is."""
    data = quote(b64encode(_der(AUTHORITY)), safe="")
    own = CERTIFICATES / "localhost.pem"
    query = (
        f"cafile={AUTHORITY}&capath={CERTIFICATES}&certfile={own}&keyfile={own}&no_verify_ssl=1&auth=EXTERNAL"
    )
    client = Connection(Address.parse(f"amqps://host/?{query}&cadata={data}").url)
    assert client.ssl_certs.cafile == str(AUTHORITY)
    assert client.ssl_certs.capath == str(CERTIFICATES)
    assert (client.ssl_certs.cert, client.ssl_certs.key, client.ssl_certs.verify) == (
        str(own),
        str(own),
        False,
    )
    assert client.ssl_certs.cadata == _der(AUTHORITY)
    assert client.url.query["auth"] == "EXTERNAL"
    assert client.heartbeat_timeout == 10


@pytest.mark.parametrize("seconds", [1, 10, 65_534])
async def test_the_heartbeat_is_the_one_that_was_asked_for(seconds: int) -> None:
    """R12."""
    assert Connection(Address.parse(f"amqp://host/?heartbeat={seconds}").url).heartbeat_timeout == seconds


@pytest.mark.parametrize(
    "word",
    [
        "a b",
        "a%b",
        "%41",
        "ü",
        "a?b",
        "a#b",
        "a/b",
        "a%2fb",
        "a+b",
        "a@b",
        "a:b",
        "a\\b",
        "a/../b",
        "[x]",
        "\0",
        "a\nb",
    ],
)
async def test_whatever_a_vhost_or_a_user_is_called_the_client_reads_it_so(word: str) -> None:
    """R15."""
    written = quote(word, safe="")
    address = Address.parse(f"amqp://{written}:{written}@host/{written}")
    client = Connection(address.url)
    url: URL = client.url
    assert (address.user, address.vhost) == (word, word)
    assert (url.user, url.password, client.vhost, url.host) == (word, word, word, "host")


def _der(file: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(file.read_text())
