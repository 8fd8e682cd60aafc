"""Bodies of requests: read with a limit, JSON in UTF-8, and no text in them that nothing could store."""

from __future__ import annotations

import json
import re
from datetime import datetime
from email.message import Message
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from outbox_kernel.infrastructure.http.json_size import check_size
from outbox_kernel.infrastructure.http.limits import ERRORS_SHOWN_MAX, LENGTH_DIGITS_MAX, TYPE_CHARACTERS_MAX
from outbox_kernel.infrastructure.http.problems import Problem, Refused, pointer_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema
    from starlette.types import Message as AsgiMessage
    from starlette.types import Receive

# Escapes that may stand for a NUL or a surrogate; whether a surrogate is alone, only reading it tells.
_SUSPICIOUS = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_LISTS = ("list", "tuple", "set", "frozenset")
UNSTORABLE = "holds a NUL or a lone surrogate, which cannot be stored: take it out"


def _ending_early(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_ending_early(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    told = {name: _ending_early(part) for name, part in schema.items()}
    return {**told, "fail_fast": True} if told.get("type") in _LISTS else told


class JsonBody(BaseModel):
    """A request's body: a member that nobody declared is refused, rather than ignored.

    Of a list's members the first that is wrong is told and no other: each that is told costs much more than to read it.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let each list end at the first member that is wrong."""
        made: CoreSchema = _ending_early(handler(source))
        return made

    @model_validator(mode="before")
    @classmethod
    def _check_members(cls, body: Any) -> Any:
        if isinstance(body, dict) and len(body) > len(cls.model_fields) + ERRORS_SHOWN_MAX:
            raise ValueError(
                f"there are {len(body):,} members, and nobody declared as many: look at the documentation"
            )
        return body

    def given(self) -> dict[str, Any]:
        """Return the members that were sent: what a PATCH is to change."""
        return {name: getattr(self, name) for name in self.model_fields_set}


def left_out() -> Any:
    """Let a member be left out that may not be null; `given` then has none of it."""
    return Field(default_factory=lambda: None)


def _text_only(value: object) -> object:
    # pydantic would take a number, or a date alone, for a moment.
    if isinstance(value, str) and not _MOMENT.match(value):
        raise ValueError("write it like 2030-05-17T09:00:00+02:00")
    return value if isinstance(value, str | datetime) else None


Moment = Annotated[datetime, BeforeValidator(_text_only), Field(examples=["2030-05-17T09:00:00+02:00"])]
"""A moment, as RFC 3339 writes it; whether it needs an offset, the domain says."""

WholeNumber = Annotated[int, Field(strict=True)]
"""A whole number, and no text that looks like one."""


class ClientLeft(Exception):
    """Whoever asked has hung up before the body was whole."""


async def read_body(headers: Mapping[str, str], receive: Receive, bytes_max: int, values_max: int) -> bytes:
    """Read it whole and hold it against what every body here is to be, or raise Refused."""
    if _declared_length(headers) > bytes_max:
        raise Refused(too_large(bytes_max))
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        body += message.get("body", b"")
        if len(body) > bytes_max:
            raise Refused(too_large(bytes_max))
        more = message.get("more_body", False)
    if body:
        _check_type(headers)
        check_size(bytes(body), values_max)
        _check_text(bytes(body))
    return bytes(body)


def again(body: bytes, receive: Receive) -> Receive:
    """Give the body to whoever reads it next, and after it what else is received."""
    left = [body]

    async def from_here() -> AsgiMessage:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return from_here


def _declared_length(headers: Mapping[str, str]) -> int:
    length = headers.get("content-length", "")
    # Python reads no number of thousands of digits, and so many say enough.
    return int(length[:LENGTH_DIGITS_MAX]) if length.isascii() and length.isdigit() else 0


def too_large(bytes_max: int) -> Problem:
    """Say that a body is larger than it may be."""
    return Problem(413, "too_large", f"the body is larger than {bytes_max:,} bytes: send less")


def _check_type(headers: Mapping[str, str]) -> None:
    if not _is_json(headers.get("content-type", "")):
        raise Refused(
            Problem(415, "not_json", "the body is to be JSON in UTF-8: send `Content-Type: application/json`")
        )


def _is_json(content_type: str) -> bool:
    # To read a long one, with a quote that never ends, takes longer than to read a megabyte.
    if len(content_type) > TYPE_CHARACTERS_MAX:
        return False
    read = Message()
    read["content-type"] = content_type
    kind = read.get_content_type()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        return False
    return read.get_content_charset("utf-8") == "utf-8"


def _check_text(body: bytes) -> None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise Refused(
            Problem(400, "malformed_json", f"the body is not in UTF-8: it goes wrong at byte {error.start}")
        ) from None
    if not _SUSPICIOUS.search(body):
        return
    try:
        place = _unstorable(json.loads(body))
    except ValueError:
        # Whoever reads it next says what is wrong with it.
        return
    if place is not None:
        pointer = pointer_to(("body", *place))
        errors = [{"pointer": pointer, "detail": UNSTORABLE}]
        raise Refused(Problem(422, "invalid", f"text at {pointer} {UNSTORABLE}", {"errors": errors}))


def is_storable(text: str) -> bool:
    """Whether databases and brokers take it."""
    return not _UNSTORABLE.search(text)


def _unstorable(value: Any) -> tuple[str | int, ...] | None:
    """Find the first text that cannot be stored, and return the names and numbers that lead there."""
    if isinstance(value, str):
        return None if is_storable(value) else ()
    if not isinstance(value, dict | list):
        return None
    for name, member in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(name, str) and not is_storable(name):
            # A name may be as unfit to be shown as a value.
            return ()
        if (place := _unstorable(member)) is not None:
            return (name, *place)
    return None
