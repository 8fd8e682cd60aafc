"""Nothing that others may know is taken for a secret, and no key that others may have put there for one's own (R14)."""

from __future__ import annotations

import base64
import os
import secrets
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from outbox_kernel.infrastructure.dev import DevFolder, FolderRefused
from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.http import BearerTokens
from outbox_kernel.infrastructure.http.tokens import sign
from tests.commands import failed_in_one_sentence, outbox

PRIVATE = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "p256": ec.generate_private_key(ec.SECP256R1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate(),
}


def public(
    private: Any, encoding: Encoding = Encoding.DER, form: Any = PublicFormat.SubjectPublicKeyInfo
) -> bytes:
    found: bytes = private.public_key().public_bytes(encoding, form)
    return found


def own(private: Any) -> bytes:
    found: bytes = private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return found


def bare_keys() -> dict[str, str]:
    """Keys without their frame, as they are pasted into a setting."""
    found: dict[str, str] = {}
    for name, private in PRIVATE.items():
        der = public(private)
        found |= {
            f"{name} in base64": base64.b64encode(der).decode(),
            f"{name} in base64 of URLs": base64.urlsafe_b64encode(der).decode().rstrip("="),
            f"{name} in lines": base64.encodebytes(der).decode(),
            f"{name} in lines as one": base64.encodebytes(der).decode().replace("\n", "\\n"),
            f"{name} in hex": der.hex(),
            f"{name}, its PEM in base64": base64.b64encode(public(private, Encoding.PEM)).decode(),
            f"{name}, its PEM in hex": public(private, Encoding.PEM).hex(),
            f"{name}, the private one": base64.b64encode(own(private)).decode(),
        }
    pkcs1 = public(PRIVATE["rsa"], form=PublicFormat.PKCS1)
    point = public(PRIVATE["p256"], Encoding.X962, PublicFormat.UncompressedPoint)
    jwk = b'{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}'
    return {
        **found,
        "rsa by PKCS #1": base64.b64encode(pkcs1).decode(),
        "p256 as a point": base64.b64encode(point).decode(),
        "a JSON Web Key in base64": base64.urlsafe_b64encode(jwk).decode().rstrip("="),
    }


BARE = bare_keys()
NO_SECRETS = {
    "https://id.example.org/.well-known/jwks.json": "is an address, and nothing is fetched from there",
    "file:///etc/outbox/keys/production/public": "is an address",
    "vault:secret/data/outbox/token/production": "is an address",
    "/etc/outbox/keys/token-signing-public.pem": "is the path of a file",
    "/etc/outbox/keys/production/token/public": "is the path of a file",
    "./keys/of/the/outbox/production/public-key": "is the path of a file",
    "~/keys/of/the/outbox/production/public-key": "is the path of a file",
    "C:\\keys\\of the outbox\\production\\public": "is the path of a file",
    "keys-of-the-outbox-in-production-public.pub": "is the path of a file",
    "id.example.org/.well-known/openid-configuration": "is the path of a file",
    "secrets/jwt/production/signing-key-of-2026": "is the path of a file",
    '"https://id.example.org/.well-known/jwks.json"': "is an address",
    "<https://id.example.org/.well-known/jwks.json>": "is an address",
    "OUTBOX_API_TOKEN_KEY_OF_OUR_PRODUCTION": "is a placeholder",
    "env:OUTBOX_API_TOKEN_KEY_OF_PRODUCTION": "is a placeholder",
    "change-me-before-you-go-to-production-2026": "is a placeholder",
    "your-256-bit-secret-goes-here-in-production": "is a placeholder",
    "a-string-secret-at-least-256-bits-long": "is printed in a tutorial",
    "09d25e094faa6ca2556c818166b7a9563b93f7099f6f0f4caa6cf63b88e8d3e7": "is printed in a tutorial",
    '{"keys": [{"kty": "RSA", "n": "0vx7", "e": "AQAB"}]}': "is a JSON Web Key",
    "${OUTBOX_API_TOKEN_KEY_OF_PRODUCTION}": "is a placeholder",
    "$OUTBOX_API_TOKEN_KEY_OF_OUR_PRODUCTION": "is a placeholder",
    "<put the secret key of your service here>": "is a placeholder",
    "%OUTBOX_API_TOKEN_KEY_OF_PRODUCTION%": "is a placeholder",
    "--BEGIN PUBLIC KEY-- MIIBIjANBgkqhkiG9w0BAQEFAAOC": "is a key whose frame is damaged",
    sign("a secret for tests that is long enough", "ada", lasts_seconds=60): "is a token, and not the key",
    public(PRIVATE["rsa"], Encoding.OpenSSH, PublicFormat.OpenSSH).decode(): "in the form of OpenSSH",
    public(PRIVATE["ed25519"], Encoding.OpenSSH, PublicFormat.OpenSSH).decode(): "in the form of OpenSSH",
    "x" * 64: "the same again and again",
    "hunter2" * 6: "the same again and again",
    "changeme-changeme-changeme-changeme": "is a placeholder",
    "0123" * 20: "the same again and again",
    secrets.token_hex(15): "is shorter than 32 bytes",
}


@pytest.mark.parametrize("key", NO_SECRETS, ids=lambda key: key[:24])
def test_what_is_no_secret_is_refused_with_a_remedy(key: str) -> None:
    for read in (BearerTokens, lambda key: sign(key, "ada", lasts_seconds=60)):
        with pytest.raises(BadSetting) as refused:
            read(key)
        assert str(refused.value).startswith("OUTBOX_API_TOKEN_KEY ")
        assert NO_SECRETS[key] in str(refused.value)
        assert ": " in str(refused.value)
        assert key not in str(refused.value)


@pytest.mark.parametrize("name", BARE)
def test_a_key_without_its_frame_is_no_secret(name: str) -> None:
    with pytest.raises(
        BadSetting, match="is a key or a certificate without its frame: write the public key in PEM"
    ):
        BearerTokens(BARE[name])


def test_the_path_of_a_file_that_is_there_is_no_secret(tmp_path: Path) -> None:
    file = tmp_path / secrets.token_hex(32)
    file.touch()
    with pytest.raises(BadSetting, match="is the path of a file"):
        BearerTokens(str(file))


@pytest.mark.parametrize(
    "make",
    [
        lambda: secrets.token_hex(32),
        lambda: secrets.token_hex(16),
        lambda: secrets.token_urlsafe(32),
        lambda: base64.b64encode(os.urandom(32)).decode(),
        lambda: "/" + base64.b64encode(os.urandom(32)).decode(),
        lambda: base64.b85encode(os.urandom(32)).decode(),
        lambda: "a sentence of words that nobody else would think of",
    ],
)
def test_a_secret_of_any_make_is_taken(make: Any) -> None:
    for _ in range(500):
        BearerTokens(make())


def test_the_command_says_so_too() -> None:
    refused = failed_in_one_sentence(
        outbox("api", DATABASE_URL="postgresql:///x", OUTBOX_API_TOKEN_KEY=BARE["rsa in base64"])
    )
    assert refused.startswith("OUTBOX_API_TOKEN_KEY is a key or a certificate without its frame")


# --- the key of `outbox dev` -----------------------------------------------------------------------------


KEY = secrets.token_hex(32)


def planted(folder: Path, mode: int = 0o600) -> Path:
    """A key that lies there already."""
    file = folder / "token-key"
    file.write_text(KEY)
    file.chmod(mode)
    return file


def refusal(folder: Path) -> str:
    sentences = set()
    for ask in (DevFolder.token_key, DevFolder.made_token_key):
        with pytest.raises(FolderRefused) as refused:
            ask(DevFolder(folder))
        sentences.add(str(refused.value))
    (sentence,) = sentences
    return sentence


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777, 0o720])
def test_a_folder_that_others_write_to_is_not_trusted(tmp_path: Path, mode: int) -> None:
    planted(tmp_path)
    tmp_path.chmod(mode)
    assert "can be written by others, who could put a key of theirs there: run `chmod go-w`" in refusal(
        tmp_path
    )
    with pytest.raises(FolderRefused, match="can be written by others"), DevFolder(tmp_path).held():
        pass


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert "is another user's" in refusal(tmp_path)
    with pytest.raises(FolderRefused, match="is another user's"), DevFolder(tmp_path).held():
        pass


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o622, 0o666])
def test_a_key_that_others_read_or_write_is_not_trusted(tmp_path: Path, mode: int) -> None:
    planted(tmp_path, mode)
    assert "can be read or written by others, who could sign in as anybody: remove it" in refusal(tmp_path)


def test_a_key_of_somebody_else_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path)
    mine = os.geteuid()
    uids = iter([mine, mine + 1] * 2)
    monkeypatch.setattr(os, "geteuid", lambda: next(uids))
    assert "was put there by somebody else: remove it" in refusal(tmp_path)


def test_a_link_to_a_key_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "token-key").symlink_to(planted(tmp_path / "elsewhere"))
    assert "is a link to somewhere else: remove it" in refusal(tmp_path / "kept")


def test_a_key_is_never_written_into_what_lies_there(tmp_path: Path) -> None:
    """An empty file of somebody else's, who has it open, and will read what is written there."""
    file = tmp_path / "token-key"
    with file.open("w+") as theirs:
        key = DevFolder(tmp_path).made_token_key()
        assert theirs.read() == ""
    assert file.read_text() == key
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_no_file_is_no_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token-key")
    assert len(DevFolder(tmp_path).made_token_key()) == 64


def test_a_new_folder_is_written_by_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with DevFolder(tmp_path / "new").held():
            assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(before)


def test_a_token_is_not_signed_with_a_planted_key(tmp_path: Path) -> None:
    planted(tmp_path)
    tmp_path.chmod(0o777)
    refused = failed_in_one_sentence(outbox("token", "ada", "--folder", str(tmp_path)))
    assert refused.startswith(f"{tmp_path} can be written by others")
