"""Messages in PostgreSQL: the tables, the mapping and the unit of work."""

from __future__ import annotations

from enum import Enum as PythonEnum

from sqlalchemy import Column, DateTime, Enum, ForeignKey, Integer, MetaData, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import registry

from contexts.messaging.domain import GroupMessage, ScheduledMessage, Template
from contexts.messaging.events import GroupMessageStatus, ScheduledMessageStatus, SendType
from outbox_kernel import SqlAlchemyRepository, SqlAlchemyUnitOfWork, aggregate_columns, map_aggregate


def _choice(members: type[PythonEnum]) -> Enum:
    return Enum(
        members,
        native_enum=False,
        length=20,
        values_callable=lambda choices: [choice.value for choice in choices],
    )


messaging_metadata = MetaData()

# No foreign keys to accounts, channels and contact groups: those are other contexts'.
templates_table = Table(
    "message_templates",
    messaging_metadata,
    Column("id", Uuid, primary_key=True),
    Column("account_id", Uuid, nullable=False),
    Column("body", Text, nullable=False),
    *aggregate_columns(),
)


def _template_key(table: str) -> ForeignKey:
    # Deferred: aggregates know each other by id alone, so that a flush inserts a message and its template in any order.
    return ForeignKey(
        "message_templates.id", name=f"{table}_template_id_fkey", deferrable=True, initially="DEFERRED"
    )


group_messages_table = Table(
    "group_messages",
    messaging_metadata,
    Column("id", Uuid, primary_key=True),
    Column("account_id", Uuid, nullable=False),
    Column("channel_id", Uuid, nullable=False),
    Column("template_id", Uuid, _template_key("group_messages"), nullable=False),
    Column("status", _choice(GroupMessageStatus), nullable=False),
    Column("contact_group_ids", ARRAY(Uuid, as_tuple=True), nullable=False),
    Column("total_recipients", Integer, nullable=False),
    Column("scheduled_at", DateTime(timezone=True)),
    *aggregate_columns(),
)

scheduled_messages_table = Table(
    "scheduled_messages",
    messaging_metadata,
    Column("id", Uuid, primary_key=True),
    Column("account_id", Uuid, nullable=False),
    Column("channel_id", Uuid, nullable=False),
    Column("template_id", Uuid, _template_key("scheduled_messages"), nullable=False),
    Column("send_type", _choice(SendType), nullable=False),
    Column("status", _choice(ScheduledMessageStatus), nullable=False),
    Column("scheduled_at", DateTime(timezone=True), nullable=False),
    Column("timezone", Text, nullable=False),
    Column("recurrence_rule", Text),
    Column("next_trigger_at", DateTime(timezone=True)),
    *aggregate_columns(),
)

_registry = registry()
map_aggregate(_registry, Template, templates_table)
map_aggregate(_registry, GroupMessage, group_messages_table)
map_aggregate(_registry, ScheduledMessage, scheduled_messages_table)


class SqlMessagingUnitOfWork(SqlAlchemyUnitOfWork):
    """The unit of work of this context on PostgreSQL."""

    @property
    def group_messages(self) -> SqlAlchemyRepository[GroupMessage]:
        """All messages to groups."""
        return self.repository(GroupMessage)

    @property
    def scheduled_messages(self) -> SqlAlchemyRepository[ScheduledMessage]:
        """All scheduled messages."""
        return self.repository(ScheduledMessage)

    @property
    def templates(self) -> SqlAlchemyRepository[Template]:
        """All templates."""
        return self.repository(Template)
