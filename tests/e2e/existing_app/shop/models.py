"""What the shop stores."""

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    """All tables of the shop."""


class Customer(Base):
    """Who buys."""

    __tablename__ = "customers"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(200))


class Order(Base):
    """What somebody wants to have."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(ForeignKey("customers.id"))
    status: Mapped[str] = mapped_column(String(20), default="open")
    lines: Mapped[list["OrderLine"]] = relationship(cascade="all, delete-orphan", lazy="selectin")

    def add(self, article: str, cents: int) -> None:
        """Put an article on it."""
        self.lines.append(OrderLine(article=article, cents=cents))

    @property
    def cents(self) -> int:
        """What all of it costs."""
        return sum(line.cents for line in self.lines)

    def pay(self) -> None:
        """Note that the money is there."""
        self.status = "paid"


class OrderLine(Base):
    """One article of an order."""

    __tablename__ = "order_lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    article: Mapped[str] = mapped_column(String(200))
    cents: Mapped[int]
