"""The port of the use cases in memory: the same promises as on PostgreSQL, without a database."""

from __future__ import annotations

from contexts.messaging.domain import GroupMessage, ScheduledMessage, Template
from outbox_kernel.testing import InMemoryRepository, InMemoryUnitOfWork


class InMemoryMessagingUnitOfWork(InMemoryUnitOfWork):
    @property
    def group_messages(self) -> InMemoryRepository[GroupMessage]:
        return self.repository(GroupMessage)

    @property
    def scheduled_messages(self) -> InMemoryRepository[ScheduledMessage]:
        return self.repository(ScheduledMessage)

    @property
    def templates(self) -> InMemoryRepository[Template]:
        return self.repository(Template)
