"""One event of every shape that the wire accepts, in both layouts."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, auto
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import attrs
from pydantic import BaseModel, ConfigDict, Field, RootModel

from outbox_kernel.kernel import DomainEvent, event, sensitive

LAYOUTS: tuple[Literal["snake", "camel"], ...] = ("snake", "camel")

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


@dataclass(frozen=True)
class Weight:
    grams: int


@dataclass
class Branch:
    branch_name: str
    twigs: list[Branch]
    _: KW_ONLY
    weight: Weight | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    email: Email | None = None


@dataclass(frozen=True, slots=True)
class Slotted:
    grown_at: datetime
    took: timedelta = timedelta()


class Place(BaseModel):
    model_config = ConfigDict(frozen=True)

    street_name: str = Field(alias="street")
    opens_after: timedelta = timedelta()


class Person(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    first_name: str
    photo: bytes
    home: Place | None
    friends: list[Person]
    branch: Branch
    money: Money
    anything: Any


class PersonId(RootModel[UUID]):
    model_config = ConfigDict(frozen=True)


class Ages(RootModel[dict[str, int]]):
    pass


@attrs.define
class Mixture:
    person: Person | None
    branches: tuple[Branch, ...]
    slotted: Slotted


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
    duration: timedelta
    raw_bytes: bytes


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


class Classes:
    weight: Weight
    branch: Branch | None
    place: Place
    person: Person
    person_id: PersonId
    ages: Ages
    mixture: Mixture
    by_weight: dict[Weight, Branch]
    by_person: dict[PersonId, Place | None]
    places: frozenset[Place]
    slotted: set[Slotted]
    secret_mail: Annotated[str, sensitive()]


class Free:
    anything: Any
    perhaps: Any | None
    some_object: object
    json_object: dict[str, Any]
    json_objects: list[dict[str, object]]
    by_id: dict[UUID, Any]
    pair: tuple[Any, bytes]
    durations: dict[str, list[timedelta | None]]
    blobs: set[bytes]


@event("catalogue.Anything")
class Anything(DomainEvent):
    value: Any


def _define() -> list[type[DomainEvent]]:
    defined: list[type[DomainEvent]] = []
    for shape in (Scalars, Choices, Objects, Moments, Containers, Dicts, Classes, Free):
        fields = {key: value for key, value in vars(shape).items() if not key.startswith("__")}
        body = {**fields, "__annotations__": shape.__annotations__, "__module__": __name__}
        for layout in LAYOUTS:
            define = event(f"catalogue.{shape.__name__}.{layout}", layout=layout, version=2, first_version=2)
            defined.append(define(type(shape.__name__, (DomainEvent,), dict(body))))
    return defined


CATALOGUE = _define()
