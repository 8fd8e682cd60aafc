"""Settings, read once from the environment; each bad value is one sentence that names it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from attrs import field, frozen

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.limits import EXCHANGE_CHARACTERS_MAX, IDENTIFIER_CHARACTERS_MAX
from outbox_kernel.infrastructure.master_keys import MasterKeys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attrs import Attribute

# Lower case only: a name that needs no quotes is the same name in psql, in a dump and in a log.
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
_EXCHANGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_PASSWORD = re.compile(r"(?P<user>://[^/?#:@]*):.*@|(?P<query>[?&]password=)[^&]*")


def _identifier(_: object, __: Attribute[str | None], schema: str | None) -> None:
    if schema is None:
        return
    plain = _IDENTIFIER.fullmatch(schema) and len(schema) <= IDENTIFIER_CHARACTERS_MAX
    if not plain or schema.startswith("pg_"):
        raise BadSetting(
            "OUTBOX_SCHEMA",
            f"is {schema!r}, which cannot name a schema here: write lower-case letters, digits and "
            f"underscores, at most {IDENTIFIER_CHARACTERS_MAX}, not beginning with a digit or pg_",
        )


def names_channel(_: object, __: Attribute[str], channel: str) -> None:
    """Refuse what is no name that LISTEN and NOTIFY take without quotes."""
    if not _IDENTIFIER.fullmatch(channel) or len(channel) > IDENTIFIER_CHARACTERS_MAX:
        raise BadSetting(
            "OUTBOX_CHANNEL",
            f"is {channel!r}, which names no channel: write lower-case letters, digits and underscores, "
            f"at most {IDENTIFIER_CHARACTERS_MAX}, not beginning with a digit",
        )


def _exchange(_: object, __: Attribute[str], exchange: str) -> None:
    if not _EXCHANGE.fullmatch(exchange) or len(exchange) > EXCHANGE_CHARACTERS_MAX:
        raise BadSetting(
            "RABBITMQ_EXCHANGE",
            f"is {exchange!r}, which names no exchange here: write letters, digits, dots, dashes and underscores, "
            f"at most {EXCHANGE_CHARACTERS_MAX}",
        )
    if exchange.startswith("amq."):
        raise BadSetting(
            "RABBITMQ_EXCHANGE",
            f"is {exchange!r}, and the broker keeps names that begin with amq. for itself: write another one",
        )


def _packages(_: object, __: Attribute[tuple[str, ...] | None], contexts: tuple[str, ...] | None) -> None:
    for package in contexts or ():
        if not all(part.isidentifier() for part in package.split(".")):
            raise BadSetting(
                "OUTBOX_CONTEXTS",
                f"names {package!r}, which is no Python package: write dotted names with commas "
                "between them, such as contexts.accounts,contexts.messaging",
            )


@frozen(kw_only=True)
class Settings:
    """What one process needs to know; every field has the default of a bare environment."""

    database_url: str | None = field(default=None, repr=lambda url: repr(masked(url)))
    outbox_schema: str | None = field(default=None, validator=_identifier)
    """The schema of the outbox's tables; without one they live where the search path points."""
    contexts: tuple[str, ...] | None = field(default=None, validator=_packages)
    """Packages of the bounded contexts; without them, every package under `contexts`."""
    channel: str = field(default="outbox_channel", validator=names_channel)
    """Where commits are told of, and relays listen."""
    rabbitmq_url: str | None = field(default=None, repr=lambda url: repr(masked(url)))
    """Without it nothing is published to a broker."""
    rabbitmq_exchange: str = field(default="messaging", validator=_exchange)
    """Where publishers and queues that name no exchange meet."""
    master_keys: MasterKeys | None = field(default=None)
    """What the keys of subjects are encrypted by; without them, those of the environment, where it has any."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings; an empty variable counts as one that is not set."""
        return cls(
            database_url=environ.get("DATABASE_URL", "").strip() or None,
            outbox_schema=environ.get("OUTBOX_SCHEMA", "").strip() or None,
            contexts=_comma_separated(environ.get("OUTBOX_CONTEXTS", "")),
            channel=environ.get("OUTBOX_CHANNEL", "").strip() or "outbox_channel",
            rabbitmq_url=environ.get("RABBITMQ_URL", "").strip() or None,
            rabbitmq_exchange=environ.get("RABBITMQ_EXCHANGE", "").strip() or "messaging",
            master_keys=MasterKeys.from_environment(environ),
        )

    @property
    def required_rabbitmq_url(self) -> str:
        """RabbitMQ's URL, or the sentence that asks for it."""
        if self.rabbitmq_url is None:
            raise BadSetting("RABBITMQ_URL", "is not set: write amqp://user:password@host:5672/vhost")
        return self.rabbitmq_url

    @property
    def required_database_url(self) -> str:
        """The database's URL, or the sentence that asks for it."""
        if self.database_url is None:
            raise BadSetting(
                "DATABASE_URL", "is not set: write postgresql://user:password@host:5432/database"
            )
        return self.database_url


def names_host(setting: str, host: str, remedy: str) -> None:
    """Refuse what no host can be called: looking it up would not fail as other look-ups do."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise BadSetting(setting, f"names a host {host!r}, which is no host's name: {remedy}") from None


def masked(url: str | None) -> str | None:
    """Give the URL without its password, fit for a log; works on what is no URL as well."""
    return url and _PASSWORD.sub(
        lambda found: f"{found['user']}:***@" if found["user"] else f"{found['query']}***", url
    )


def _comma_separated(text: str) -> tuple[str, ...] | None:
    return tuple(part.strip() for part in text.split(",") if part.strip()) or None
