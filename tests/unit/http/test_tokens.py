"""Bearer tokens: only one that is signed with the key, has an end and says for whom, opens the door."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.http import BearerTokens, Principal, Unauthenticated
from outbox_kernel.infrastructure.http.limits import (
    LEEWAY_SECONDS,
    SUBJECT_CHARACTERS_MAX,
    TOKEN_CHARACTERS_MAX,
)
from outbox_kernel.infrastructure.http.tokens import sign
from outbox_kernel.kernel.clock import now

KEY = "a secret of the tests, long enough to be one"
OTHER_KEY = KEY[::-1]


async def principal(authorization: str, tokens: BearerTokens | None = None) -> Principal:
    return await (tokens or BearerTokens(KEY)).principal_of({"authorization": authorization})


async def refusal(token: str, tokens: BearerTokens | None = None) -> str:
    with pytest.raises(Unauthenticated) as refused:
        await principal(f"Bearer {token}", tokens)
    return str(refused.value)


def made(key: Any = KEY, algorithm: str = "HS256", **claims: Any) -> str:
    told = {"sub": "ada", "exp": int(now().timestamp()) + 60, **claims}
    present = {name: value for name, value in told.items() if value is not None}
    return jwt.encode(present, key, algorithm=algorithm)


def part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


async def test_the_subject_is_the_user() -> None:
    found = await principal(f"Bearer {made(team='red')}")
    assert found.user_id == "ada"
    assert found.claims["team"] == "red"


async def test_the_schemes_name_may_be_written_in_any_case() -> None:
    assert (await principal(f"bearer {made()}")).user_id == "ada"


async def test_what_sign_makes_is_read() -> None:
    token = sign(KEY, "ada", lasts_seconds=60, issuer="us", audience="them")
    assert (
        await principal(f"Bearer {token}", BearerTokens(KEY, issuer="us", audience="them"))
    ).user_id == "ada"


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer  ", "Basic YTpi", made()])
async def test_without_a_bearer_token_nobody_is_known(header: str) -> None:
    with pytest.raises(Unauthenticated, match="this needs a token"):
        await principal(header)
    with pytest.raises(Unauthenticated, match="this needs a token"):
        await BearerTokens(KEY).principal_of({})


async def test_an_old_token_is_refused() -> None:
    assert "has expired" in await refusal(made(exp=int(now().timestamp()) - LEEWAY_SECONDS - 5))


async def test_clocks_may_differ_a_little() -> None:
    lately = int(now().timestamp()) - LEEWAY_SECONDS + 10
    assert (await principal(f"Bearer {made(exp=lately)}")).user_id == "ada"


async def test_a_token_of_the_future_is_refused() -> None:
    assert "is not valid yet" in await refusal(made(nbf=int(now().timestamp()) + 3600))


async def test_a_token_of_another_key_is_refused() -> None:
    assert "signed with another key" in await refusal(made(OTHER_KEY))


async def test_a_token_that_is_not_signed_is_refused() -> None:
    unsigned = made(key="", algorithm="none")
    assert unsigned.endswith(".")
    assert "not signed in the way" in await refusal(unsigned)


async def test_a_token_without_an_end_or_a_subject_is_refused() -> None:
    assert "lacks a claim" in await refusal(made(exp=None))
    assert "lacks a claim" in await refusal(made(sub=None))


@pytest.mark.parametrize("subject", ["", "  ", "a\0da", "a\nda", "\ud800"])
async def test_a_subject_that_is_nobodys_id_is_refused(subject: str) -> None:
    assert "is no user's id" in await refusal(made(sub=subject))


async def test_a_subject_of_another_type_is_refused() -> None:
    header, claims = part(b'{"alg":"HS256","typ":"JWT"}'), part(b'{"sub":7,"exp":9999999999}')
    signature = jwt.get_algorithm_by_name("HS256").sign(f"{header}.{claims}".encode(), KEY.encode())
    assert "is none that can be read" in await refusal(f"{header}.{claims}.{part(signature)}")


async def test_a_subject_has_a_limit() -> None:
    assert "longer than" in await refusal(made(sub="a" * (SUBJECT_CHARACTERS_MAX + 1)))


@pytest.mark.parametrize(
    "token",
    [
        "rubbish",
        "a.b.c",
        "....",
        "\N{SNOWMAN}.\N{SNOWMAN}.\N{SNOWMAN}",
        f"{part(b'[' * 4_000)}.{part(b'{}')}.",
        f"{part(b'{}')}.{part(b'{}')}.{part(b'x')}",
        f"{part(json.dumps({'alg': ['HS256']}).encode())}.{part(b'{}')}.{part(b'x')}",
    ],
)
async def test_what_is_no_token_is_refused(token: str) -> None:
    assert (await refusal(token)).startswith("the token ")


async def test_a_token_has_a_limit() -> None:
    assert "is longer than" in await refusal("a" * (TOKEN_CHARACTERS_MAX + 1))


async def test_issuer_and_audience_are_held_to_where_they_are_set() -> None:
    tokens = BearerTokens(KEY, issuer="us", audience="orders")
    assert (await principal(f"Bearer {made(iss='us', aud='orders')}", tokens)).user_id == "ada"
    assert "does not know" in await refusal(made(iss="them", aud="orders"), tokens)
    assert "for another service" in await refusal(made(iss="us", aud="invoices"), tokens)
    assert "lacks a claim" in await refusal(made(aud="orders"), tokens)
    assert "lacks a claim" in await refusal(made(iss="us"), tokens)


async def test_a_token_that_is_meant_for_another_service_is_refused_unasked() -> None:
    assert "for another service" in await refusal(made(aud="orders"))


# --- keys ------------------------------------------------------------------------------------------------


def pem(private: Any) -> str:
    public: bytes = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return public.decode()


# To make one takes a tenth of a second.
RSA_KEY = rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize(
    ("private", "algorithm"),
    [
        (RSA_KEY, "RS256"),
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
    ids=["rsa", "ec", "ed25519"],
)
async def test_a_public_key_reads_what_its_private_one_has_signed(private: Any, algorithm: str) -> None:
    in_one_line = pem(private).replace("\n", "\\n")
    for tokens in (BearerTokens(pem(private)), BearerTokens(in_one_line)):
        assert (await principal(f"Bearer {made(private, algorithm)}", tokens)).user_id == "ada"


async def test_a_public_key_is_no_secret_to_sign_with() -> None:
    """The old trick: a token that is signed with what everybody knows."""
    public = pem(RSA_KEY)
    header, claims = part(b'{"alg":"HS256","typ":"JWT"}'), part(b'{"sub":"ada","exp":9999999999}')
    hs256: Any = jwt.get_algorithm_by_name("HS256")
    signature = hs256.sign(f"{header}.{claims}".encode(), public.encode())
    assert "not signed in the way" in await refusal(
        f"{header}.{claims}.{part(signature)}", BearerTokens(public)
    )


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("hunter2", "shorter than 32 bytes"),
        ("-----BEGIN PUBLIC KEY-----\nrubbish\n-----END PUBLIC KEY-----", "no public key in PEM"),
        (pem(ec.generate_private_key(ec.SECP384R1())), "of a kind that is not accepted"),
        (
            ed25519.Ed25519PrivateKey.generate()
            .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            .decode(),
            "no public key in PEM",
        ),
    ],
)
def test_a_key_that_does_not_serve_is_a_sentence(key: str, sentence: str) -> None:
    with pytest.raises(BadSetting, match=f"OUTBOX_API_TOKEN_KEY is .*{sentence}") as refused:
        BearerTokens(key)
    assert key not in str(refused.value)


def test_a_public_key_signs_nothing() -> None:
    with pytest.raises(BadSetting, match="is a public key, which signs nothing"):
        sign(pem(ed25519.Ed25519PrivateKey.generate()), "ada", lasts_seconds=60)
