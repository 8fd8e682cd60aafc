"""One event of every shape that the wire accepts, in both layouts."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag, IntEnum, auto
from typing import Annotated, Literal, NewType
from uuid import UUID

import attrs

from outbox_kernel.kernel import DomainEvent, event, sensitive

TenantId = NewType("TenantId", UUID)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = -1
    HIGH = 10


class Status(str, Enum):  # noqa: UP042 - the older spelling is met more often
    DRAFT = "draft"
    SENT = "sent"


class Unit(int, Enum):
    ONE = 1
    TEN = 10


class Right(Flag):
    READ = auto()
    WRITE = auto()


@attrs.frozen
class Email:
    address: str


@attrs.frozen
class AccountId:
    value: UUID


@attrs.frozen
class Owner:
    account_id: AccountId


@attrs.frozen
class Nickname:
    value: str | None


@attrs.frozen
class Money:
    net_amount: Decimal
    currency: Literal["EUR", "USD"] = "EUR"


@attrs.define
class Step:
    step_name: str
    next_steps: list[Step]
    price: Money | None = None


@attrs.frozen
class Path:
    parts: tuple[Path, ...]


@attrs.frozen
class Hidden:
    _inner_value: int
    shown: float = attrs.field(kw_only=True)


@attrs.frozen
class Appointment:
    at: datetime
    others: frozenset[datetime]


class Scalars:
    text: str
    whole_number: int
    real_number: float
    yes_or_no: bool
    id_of_something: UUID
    moment: datetime
    day: date
    exact_number: Decimal
    tenant_id: TenantId
    annotated: Annotated[int, "any"]


class Choices:
    colour: Colour
    level: Level
    status: Status
    rights: Right
    literal: Literal["a", 1, True]
    perhaps: Status | None
    perhaps_literal: Literal["x"] | None


class Objects:
    email: Email = sensitive()
    owner: Owner
    nickname: Nickname
    money: Money
    step: Step
    path: Path
    hidden: Hidden
    no_email: Email | None
    no_step: Step | None


class Moments:
    appointment: Appointment
    perhaps: datetime | None
    days: dict[str, tuple[datetime, ...]]


class Containers:
    emails: list[Email]
    gaps: list[Email | None]
    no_list: list[int] | None
    levels: set[Level]
    owners: frozenset[Owner]
    pair: tuple[int, Status]
    moneys: tuple[Money, ...]
    sets_of_sets: set[frozenset[TenantId]]
    nested: list[dict[str, set[Decimal]]]


class Dicts:
    by_text: dict[str, float]
    by_number: dict[int, str]
    by_id: dict[UUID, list[Money]]
    by_tenant: dict[TenantId, bool]
    by_colour: dict[Colour, Status]
    by_level: dict[Level, Level]
    by_right: dict[Right, int]
    by_unit: dict[Unit, int]
    by_email: dict[Email, Email]
    by_owner: dict[Owner, dict[Status, Owner | None]]


def _define() -> list[type[DomainEvent]]:
    defined: list[type[DomainEvent]] = []
    for shape in (Scalars, Choices, Objects, Moments, Containers, Dicts):
        fields = {key: value for key, value in vars(shape).items() if not key.startswith("__")}
        body = {**fields, "__annotations__": shape.__annotations__, "__module__": __name__}
        defined += [
            event(f"catalogue.{shape.__name__}.snake")(type(shape.__name__, (DomainEvent,), dict(body))),
            event(f"catalogue.{shape.__name__}.camel", layout="camel", version=2, first_version=2)(
                type(shape.__name__, (DomainEvent,), dict(body))
            ),
        ]
    return defined


CATALOGUE = _define()
