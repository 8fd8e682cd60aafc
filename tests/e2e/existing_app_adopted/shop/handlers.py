"""What the shop does about it."""

from infrastructure.mail import send_mail
from shop.events import OrderPaid

from outbox_kernel import StoredEvent, handles


@handles(OrderPaid)
def thank_for_payment(event: OrderPaid) -> None:
    """Thank whoever has paid."""
    send_mail(f"Thank you for {event.cents} cents.")


@handles("order.*")
async def note_what_happens(event: StoredEvent) -> None:
    """Tell the office."""
    send_mail(f"{event.event_type} {event.aggregate_key}")
