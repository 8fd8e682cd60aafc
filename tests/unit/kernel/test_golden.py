"""K8: the wire format of the two layouts is what it was on the first day."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import attrs
import pytest
from pydantic import BaseModel

from outbox_kernel.kernel import DomainEvent, deserialize_event, event, sensitive, serialize_event

GOLDEN = Path(__file__).parents[2] / "golden"

EVENT_ID = UUID("01890000-0000-7000-8000-000000000001")
FAMILY_ID = UUID("01890000-0000-7000-8000-0000000000aa")
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class Role(Enum):
    PARENT = "parent"
    CHILD = "child"


@attrs.frozen
class FamilyId:
    value: UUID


@attrs.frozen
class Email:
    address: str


@attrs.frozen
class Price:
    net_amount: Decimal
    currency_code: str | None = None


@dataclass
class Parcel:
    gross_grams: int
    label: bytes


class Place(BaseModel):
    street_name: str
    opens_after: timedelta


class Everything:
    """The fields of both events; each type of the wire at least once."""

    family_id: FamilyId
    email: Email = sensitive()
    role: Role
    is_resend: bool
    retry_count: int
    share: float
    born_on: date
    expires_at: datetime
    list_price: Price
    send_type: Literal["now", "later"]
    nickname: str | None = None
    prices: list[Price] = attrs.Factory(list)
    members: dict[Email, Role] = attrs.Factory(dict)
    location: tuple[float, str] = (0.0, "")
    tags: frozenset[str] = frozenset()
    took: timedelta = timedelta()
    parcel: Parcel | None = None
    place: Place | None = None
    free_notes: dict[str, Any] = attrs.Factory(dict)


ARGUMENTS: dict[str, Any] = {
    "family_id": FamilyId(FAMILY_ID),
    "email": Email("ada@example.org"),
    "role": Role.PARENT,
    "is_resend": False,
    "retry_count": -7,
    "share": 0.1,
    "born_on": date(1815, 12, 10),
    "expires_at": MOMENT,
    "list_price": Price(Decimal("9.90")),
    "send_type": "later",
    "prices": [Price(Decimal("1E+3"), "EUR"), Price(Decimal("-0.01"))],
    "members": {Email("b@example.org"): Role.CHILD},
    "location": (50.7, "Bönn “x” \u2028 🐍"),
    "tags": frozenset({"one"}),
    "took": timedelta(days=-1, seconds=1, microseconds=500_000),
    "parcel": Parcel(5, b"\xff\xfe?"),
    "place": Place(street_name="Main", opens_after=timedelta(days=1, hours=2, minutes=3)),
    "free_notes": {"snake_key": [None, True, 1, 1.5, "a", {"innerKey": []}]},
    "event_id": EVENT_ID,
    "occurred_at": MOMENT,
}


def define(layout: Literal["snake", "camel"]) -> type[Any]:
    fields = {key: value for key, value in vars(Everything).items() if not key.startswith("__")}
    body = {**fields, "__annotations__": Everything.__annotations__, "__module__": __name__}
    return event(f"golden.{layout}", version=3, layout=layout)(type("Golden", (DomainEvent,), body))


@pytest.mark.parametrize("layout", ["snake", "camel"])
def test_the_payload_is_as_it_was(layout: Literal["snake", "camel"]) -> None:
    found = json.dumps(json.loads(serialize_event(define(layout)(**ARGUMENTS))), indent=2, ensure_ascii=False)
    assert found == (GOLDEN / f"{layout}.json").read_text(encoding="utf-8").rstrip("\n")


@pytest.mark.parametrize("layout", ["snake", "camel"])
def test_the_payload_of_the_first_day_restores_the_event(layout: Literal["snake", "camel"]) -> None:
    cls = define(layout)
    stored = (GOLDEN / f"{layout}.json").read_text(encoding="utf-8")
    assert deserialize_event(f"golden.{layout}", stored, 3) == cls(**ARGUMENTS)
