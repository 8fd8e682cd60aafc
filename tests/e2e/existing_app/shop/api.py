"""The shop's API."""

from fastapi import FastAPI, HTTPException
from infrastructure.mail import sent_mails
from sqlalchemy import select

from shop.database import Session
from shop.models import Customer, Order

app = FastAPI()


@app.post("/orders", status_code=201)
async def place(customer: str, article: str, cents: int) -> dict[str, int]:
    """Order one article."""
    async with Session.begin() as session:
        buyer = await session.scalar(select(Customer).where(Customer.name == customer))
        if buyer is None:
            buyer = Customer(name=customer)
            session.add(buyer)
            await session.flush()
        order = Order(customer_id=buyer.id)
        order.add(article, cents)
        session.add(order)
    return {"id": order.id}


@app.post("/orders/{order_id}/payment")
async def pay(order_id: int) -> dict[str, str]:
    """Take the money for an order."""
    async with Session.begin() as session:
        order = await session.get(Order, order_id)
        if order is None:
            raise HTTPException(404)
        order.pay()
    return {"status": order.status}


@app.get("/mails")
async def mails() -> list[str]:
    """Show what was mailed by this process."""
    return sent_mails
