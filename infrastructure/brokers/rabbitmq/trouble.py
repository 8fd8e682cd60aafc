"""What aio-pika and the broker raise, as one sentence with a remedy and without a password (R14)."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aio_pika.exceptions import (
    CONNECTION_EXCEPTIONS,
    AMQPConnectionError,
    ChannelClosed,
    ChannelInvalidStateError,
    ConnectionClosed,
    IncompatibleProtocolError,
    InvalidFrameError,
    ProbableAuthenticationError,
)
from aiormq.exceptions import AuthenticationError

from outbox_kernel.infrastructure.brokers.port import BrokerLoginRefused, BrokerRefusal, BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outbox_kernel.infrastructure.brokers.rabbitmq.address import Address

TROUBLE = (*CONNECTION_EXCEPTIONS, TimeoutError, EOFError)
"""All that a broker which is gone, or refuses, may raise."""

_ERRNO = re.compile(r"\[Errno (\d+)\]")


@contextmanager
def explained(address: Address, seconds_max: float, *, greeting: bool = False) -> Iterator[None]:
    """Raise what goes wrong inside as a sentence; what the caller itself was cancelled for goes through.

    Whoever does not speak AMQP hangs up at the greeting; later it is a broker that has gone.
    """
    try:
        yield
    except BrokerRefusal:
        raise
    except TimeoutError as error:
        raise unanswered(address, seconds_max) from error
    except TROUBLE as error:
        raise sentence(error, address, greeting=greeting) from error
    except asyncio.CancelledError as error:
        # The client ends what waits for a connection that is closed as if it had been cancelled.
        if is_cancelled():
            raise
        raise sentence(error, address) from error


def unanswered(address: Address, seconds_max: float) -> BrokerUnreachable:
    """Say that nothing has come back in time."""
    return BrokerUnreachable(
        f"RabbitMQ at {address} did not answer within {seconds_max:g} s: look at its load, its alarms "
        "(`rabbitmqctl status`) and the network"
    )


def alarm(address: Address) -> BrokerUnreachable:
    """Say that the broker has asked us to send nothing."""
    return BrokerUnreachable(
        f"RabbitMQ at {address} takes no messages, by an alarm of its memory or its disk: look at "
        "`rabbitmqctl status`, let consumers empty the queues or give it room"
    )


def is_cancelled() -> bool:
    """Whether the running task itself was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def sentence(error: BaseException, address: Address, *, greeting: bool = False) -> BrokerRefusal:
    """Say what an error means."""
    if isinstance(error, ProbableAuthenticationError) or _keeps_out(error):
        return _not_in(error, address)
    if isinstance(error, AuthenticationError):
        return BrokerLoginRefused(
            f"RabbitMQ at {address} offers no login such as ?auth=… in RABBITMQ_URL asks for: leave it out, or enable "
            "it there"
        )
    if _is_gone(error, greeting=greeting):
        return BrokerUnreachable(
            f"the connection to RabbitMQ at {address} was lost: look at its log and the network"
        )
    if isinstance(error, ConnectionClosed):
        return BrokerUnreachable(f"RabbitMQ at {address} has closed the connection ({told(error)})")
    if isinstance(error, ChannelClosed):
        return BrokerRefusal(f"RabbitMQ at {address} has closed the channel ({told(error)})")
    return _unreachable(error, address)


def _is_gone(error: BaseException, *, greeting: bool) -> bool:
    if isinstance(error, ConnectionClosed):
        return not str(error)  # the client has closed it, on its own or on our behalf
    # The second is what it says of a channel that has ended since it was opened.
    return isinstance(error, asyncio.CancelledError | ChannelInvalidStateError) or (
        not greeting and _has_hung_up(error)
    )


def _keeps_out(error: BaseException) -> bool:
    # The broker's answer to a vhost that we may not enter; the client does not give its words.
    return isinstance(error, InvalidFrameError) and "Connection.Close" in str(error)


def _not_in(error: BaseException, address: Address) -> BrokerLoginRefused:
    user, vhost = address.user, address.vhost
    if isinstance(error, ProbableAuthenticationError):
        return BrokerLoginRefused(
            f"RabbitMQ at {address} does not let user {user!r} in: correct user or password in RABBITMQ_URL"
        )
    return BrokerLoginRefused(
        f"RabbitMQ at {address} does not let user {user!r} into vhost {vhost!r}: correct RABBITMQ_URL, make the "
        f"vhost with `rabbitmqctl add_vhost {vhost}`, or grant it with "
        f"`rabbitmqctl set_permissions -p {vhost} {user} '.*' '.*' '.*'`"
    )


def _unreachable(error: BaseException, address: Address) -> BrokerUnreachable:
    root = _root(error)
    if isinstance(error, IncompatibleProtocolError) or _has_hung_up(error):
        return BrokerUnreachable(
            f"what answers at {address} is no RabbitMQ, or wants TLS: correct RABBITMQ_URL "
            "(amqps:// is for TLS, its port mostly 5671)"
        )
    if isinstance(root, ssl.SSLError):
        return BrokerUnreachable(
            f"no TLS with RabbitMQ at {address} ({told(root)}): give the authority with ?cafile=… in RABBITMQ_URL, "
            "or use the name that its certificate has"
        )
    return BrokerUnreachable(
        f"RabbitMQ at {address} cannot be reached ({told(root)}): start it, or correct RABBITMQ_URL"
    )


def _has_hung_up(error: BaseException) -> bool:
    text = " ".join(str(each) for each in error.args)
    return isinstance(error, AMQPConnectionError) and "Read 0 bytes" in text


def _root(error: BaseException) -> BaseException:
    while isinstance(error, AMQPConnectionError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def told(error: BaseException) -> str:
    """Return the broker's or the system's own words, in one line."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    words = " ".join(str(each) for each in error.args if isinstance(each, str)) or type(error).__name__
    if found := _ERRNO.search(words):
        # Several addresses of one name, each with its own failure: one is enough.
        return os.strerror(int(found[1]))
    return re.sub(r"\s+", " ", getattr(error, "strerror", None) or words).strip().rstrip(".")
