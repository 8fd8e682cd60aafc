"""What is mapped to look into SQLAlchemy with, and a way to hear what it calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, composite, mapped_column, relationship

from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import OVERRIDDEN


class Base(DeclarativeBase):
    pass


class Thing(Base):
    __tablename__ = "things"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(server_default="a thing")
    size: Mapped[int] = mapped_column(default=0)
    parts: Mapped[list[Part]] = relationship()
    told: Mapped[tuple[str, int]] = composite(lambda *values: values, "name", "size")


class Part(Base):
    __tablename__ = "parts"
    id: Mapped[int] = mapped_column(primary_key=True)
    thing_id: Mapped[int] = mapped_column(ForeignKey("things.id"))


def heard_in(cls: type[Any], heard: dict[str, dict[str, Any]]) -> type[Any]:
    """Return a subclass that notes which of its listed methods SQLAlchemy calls, and with what."""

    def listening(name: str) -> Callable[..., Any]:
        def method(self: Any, *arguments: Any, **options: Any) -> Any:
            heard[f"{cls.__name__}.{name}"] = options
            return getattr(cls, name)(self, *arguments, **options)

        return method

    listed = [name.partition(".")[2] for name in OVERRIDDEN if name.startswith(f"{cls.__name__}.")]
    return type(f"Heard{cls.__name__}", (cls,), {name: listening(name) for name in listed})


def options_of_lazy_load(session: Session) -> dict[str, Any]:
    """Return with which options SQLAlchemy sends the query that fills a collection."""
    found: dict[str, dict[str, Any]] = {}
    with heard_in(Session, found)(session.bind) as other:
        other.add(thing := Thing(id=7))
        other.flush()
        other.expire(thing, ["parts"])
        assert thing.parts == []
    return found["Session._execute_internal"]
