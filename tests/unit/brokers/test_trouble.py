"""What the client raises, in one sentence (R14)."""

from __future__ import annotations

from aio_pika.exceptions import AMQPConnectionError, ChannelInvalidStateError

from outbox_kernel.infrastructure.brokers.rabbitmq import Address
from outbox_kernel.infrastructure.brokers.rabbitmq.link import Link
from outbox_kernel.infrastructure.brokers.rabbitmq.trouble import sentence

ADDRESS = Address.parse("amqp://guest:s3cret@broker.example/")
# What asyncio says of a name with two addresses, at neither of which anybody listens.
TWICE_REFUSED = (
    "Multiple exceptions: [Errno 111] Connect call failed ('::1', 5672, 0, 0), "
    "[Errno 111] Connect call failed ('127.0.0.1', 5672)"
)


def test_a_name_with_several_addresses_is_told_of_once() -> None:
    error = AMQPConnectionError("the client's own words")
    error.__cause__ = OSError(TWICE_REFUSED)
    assert str(sentence(error, ADDRESS)) == (
        "RabbitMQ at broker.example:5672 cannot be reached (Connection refused): start it, or correct RABBITMQ_URL"
    )


def test_a_channel_that_has_ended_meanwhile_is_no_broker_to_be_started() -> None:
    assert str(sentence(ChannelInvalidStateError("writer is closed"), ADDRESS)) == (
        "the connection to RabbitMQ at broker.example:5672 was lost: look at its log and the network"
    )


async def test_a_link_that_was_never_opened_is_not_blocked() -> None:
    """T4: nobody waits for it."""
    link = Link(ADDRESS, "tests")
    assert not await link.blocked()
    await link.unblocked()
