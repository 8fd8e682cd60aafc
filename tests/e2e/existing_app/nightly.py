"""Every night, without an event loop: whoever has not paid until now is not going to."""

from shop.database import ScriptSession
from shop.models import Order
from sqlalchemy import select

with ScriptSession.begin() as session:
    for order in session.scalars(select(Order).where(Order.status == "open")):
        order.status = "cancelled"
        print(order.id)  # noqa: T201 - for whoever reads the log
