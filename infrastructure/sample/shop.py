"""The shop: its events, who is subscribed to them, and how each of these fares."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

from outbox_kernel.kernel import DomainEvent, event, sensitive
from outbox_kernel.kernel.matching import matches

if TYPE_CHECKING:
    from collections.abc import Mapping

# An application may have events of any other name, and must not meet its own here.
PREFIX = "webshop."


@event(f"{PREFIX}order.placed")
class OrderPlaced(DomainEvent):
    """Somebody has bought something."""

    order_id: str
    customer: int
    email: str = sensitive()
    total: Decimal
    currency: str
    lines: list[dict[str, object]]


@event(f"{PREFIX}payment.charged")
class PaymentCharged(DomainEvent):
    """The card was charged."""

    order_id: str
    amount: Decimal
    card: str = sensitive()


@event(f"{PREFIX}stock.reserved")
class StockReserved(DomainEvent):
    """What was bought is put aside."""

    order_id: str
    product: str
    pieces: int


@event(f"{PREFIX}receipt.sent")
class ReceiptSent(DomainEvent):
    """The customer has it in writing."""

    order_id: str
    email: str = sensitive()


@event(f"{PREFIX}order.shipped")
class OrderShipped(DomainEvent):
    """It is on its way."""

    order_id: str
    carrier: str
    tracking: str


@event(f"{PREFIX}customer.joined")
class CustomerJoined(DomainEvent):
    """Somebody has an account."""

    customer: int
    name: str
    email: str = sensitive()


class Fate(StrEnum):
    """How a subscription fares."""

    FINE = "fine"
    BEHIND = "behind"
    """It falls behind by the hour."""
    PAUSED = "paused"
    AWAY = "away"
    """Its broker is."""
    UNREAD = "unread"
    """No live relay carries it."""
    RETIRED = "retired"


@attrs.frozen
class Subscribed:
    """A subscription of the sample."""

    name: str
    patterns: tuple[str, ...]
    fate: Fate = Fate.FINE
    kind: str = "handler"
    source: str | None = None
    behind_seconds: float = 0.3
    reason: str | None = None
    not_carried: tuple[str, ...] = ()
    """Of its patterns."""
    ordered: bool = True

    def is_due(self, event_type: str, source: str | None) -> bool:
        """Whether it is for an event of that type, which was written here or brought by a queue."""
        return source == self.source and matches(event_type, self.patterns)


SHIPMENTS = "shipments"
SUBSCRIPTIONS = (
    Subscribed("billing.ChargeCard", (f"{PREFIX}order.confirmed", f"{PREFIX}order.placed")),
    Subscribed("billing.Refund", (f"{PREFIX}order.cancelled", f"{PREFIX}payment.refused")),
    Subscribed("fraud.Score", (f"{PREFIX}payment.*",), Fate.UNREAD, behind_seconds=5_400),
    Subscribed("loyalty.Points", (f"{PREFIX}payment.charged",), Fate.RETIRED),
    Subscribed(
        "mail.Welcome",
        (f"{PREFIX}customer.imported", f"{PREFIX}customer.joined"),
        not_carried=(f"{PREFIX}customer.imported",),
    ),
    Subscribed("mail.SendReceipt", (f"{PREFIX}payment.charged",), behind_seconds=0.8),
    Subscribed(
        "search.IndexProducts",
        (f"{PREFIX}customer.*", f"{PREFIX}stock.reserved"),
        Fate.BEHIND,
        behind_seconds=2_700,
        ordered=False,
    ),
    Subscribed("shipping.Track", (f"{PREFIX}order.shipped",), source=SHIPMENTS),
    Subscribed("stock.Forecast", (f"{PREFIX}stock.*",), Fate.PAUSED, behind_seconds=10_800),
    Subscribed("stock.Reserve", (f"{PREFIX}order.placed",), behind_seconds=0.2),
    Subscribed(
        "Übersetzung.文書を送る.aVeryLongNameOfAHandlerThatNobodyWouldWriteAndSomebodyDidAllTheSame",
        (f"{PREFIX}receipt.sent",),
    ),
    Subscribed("messaging", (f"{PREFIX}order.*",), kind="publisher", behind_seconds=0.5),
    Subscribed(
        "warehouse",
        (f"{PREFIX}stock.*",),
        Fate.AWAY,
        kind="publisher",
        behind_seconds=1_260,
        reason="RabbitMQ at broker-2.example:5672 refuses the connection: start it, or correct RABBITMQ_URL",
    ),
)


@attrs.frozen
class Died:
    """So many deliveries of a handler that died of something."""

    handler: str
    errors: tuple[str, ...]
    letters: int
    attempts: int = 10
    half_done: bool = False


DEAD = (
    Died(
        "billing.ChargeCard",
        ("PaymentRefused: the card of customer {customer} was refused (code {code}): insufficient funds",),
        14,
    ),
    Died("billing.ChargeCard", ("TimeoutError: the handler took longer than 30 s",), 5),
    Died("billing.ChargeCard", ("kills the process",), 1, attempts=3),
    Died(
        "billing.ChargeCard",
        ("SecondCommit: billing.ChargeCard commits a second time for one event: put both into one commit",),
        1,
        attempts=1,
        half_done=True,
    ),
    Died(
        "stock.Reserve",
        (
            "KeyError: 'size-{code}'",
            'IntegrityError: duplicate key value violates unique constraint "stock_{code}"',
        ),
        6,
    ),
    Died(
        "Übersetzung.文書を送る.aVeryLongNameOfAHandlerThatNobodyWouldWriteAndSomebodyDidAllTheSame",
        (
            (
                "UnicodeEncodeError: 'ascii' codec can't encode character '\\u6587' in position {code}\n"
                'with a second line, <b>markup</b> & "quotes"'
            ),
        ),
        2,
    ),
)
RETRYING = Died(
    "mail.SendReceipt", ("SMTPServerDisconnected: connection unexpectedly closed by mail-{code}.example",), 7
)
NEWER = "stock.Forecast"
"""It has an event of a version that no live relay knows."""

LIVE_HOSTS = ("relay-eu-1", "relay-eu-2", "relay-us-1")
VANISHED_HOST = "relay-us-2"
CODE_VERSION = "2026.11.3"
NAMES = ("Ada Lovelace", "Grace Hopper", "渡辺 翔", "Zoë Müller-Łukasiewicz", "Нина Петрова", "")
PRODUCTS: Mapping[str, Decimal] = {
    "teapot": Decimal("34.90"),
    "Teekanne „Größe XL“": Decimal("49.00"),
    "急須": Decimal("62.50"),
    "cake stand": Decimal("18.20"),
    "a-product-whose-key-is-so-long-that-no-column-has-room-for-all-of-it-0123456789": Decimal("9.99"),
}
