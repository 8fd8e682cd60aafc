"""A service of somebody else, in another client: it reads a queue, and knows nothing of this product."""

import json
from collections.abc import Iterator
from typing import Any

import pika


def read(url: str, queue: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield routing key, headers and body of each message, until none comes for a moment."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    for method, properties, body in channel.consume(queue, inactivity_timeout=0.5):
        if method is None:
            break
        yield method.routing_key, properties.headers, json.loads(body)
        channel.basic_ack(method.delivery_tag)
    channel.connection.close()


def write(url: str, queue: str, body: bytes, **properties: Any) -> None:
    """Put a message into a queue that says nothing beside its body, or whatever AMQP lets it say."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_publish("", queue, body, pika.BasicProperties(**properties))
    channel.connection.close()
