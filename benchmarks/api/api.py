"""One endpoint twice: the same body, row and answer; one records an event, the other is not captured at all."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID, uuid4

from attrs import frozen
from fastapi import APIRouter
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from benchmarks.parcels import Parcel
from outbox_kernel.infrastructure.http import JsonBody, Provided

router = APIRouter()


@frozen
class Plain:
    """Sessions without capture."""

    sessions: async_sessionmaker[AsyncSession]


@frozen
class Captured:
    """Sessions with capture."""

    sessions: async_sessionmaker[AsyncSession]


class ParcelBody(JsonBody):
    """A parcel to register."""

    recipient: str


class Registered(BaseModel):
    """The parcel that was registered."""

    id: UUID


@router.post("/parcels", status_code=201)
async def with_an_event(body: ParcelBody, made: Annotated[Captured, Provided(Captured)]) -> Registered:
    """Store it, with its event."""
    return await _store(body, made.sessions, events=1)


@router.post("/parcels-without-events", status_code=201)
async def without_events(body: ParcelBody, made: Annotated[Plain, Provided(Plain)]) -> Registered:
    """Store it."""
    return await _store(body, made.sessions, events=0)


async def _store(body: ParcelBody, sessions: async_sessionmaker[AsyncSession], events: int) -> Registered:
    parcel = Parcel(uuid4(), body.recipient).register(events)
    async with sessions() as session:
        session.add(parcel)
        await session.commit()
    return Registered(id=parcel.id)
