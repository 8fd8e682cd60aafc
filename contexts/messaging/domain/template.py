"""The text that messages are made from."""

from __future__ import annotations

from uuid import UUID, uuid4

from contexts.messaging.domain.errors import InvalidTemplate
from outbox_kernel import AggregateRoot, aggregate

BODY_CHARACTERS_MAX = 4096


@aggregate("message_template")
class Template(AggregateRoot):
    """A text of an account's, for one message or for many.

    It records no event: nobody outside asks for templates, and a message names its own. Whoever changes that
    calls the event `message_template.…`, outside the patterns of the broker's publisher.
    """

    id: UUID
    account_id: UUID
    body: str

    @classmethod
    def write(cls, account_id: UUID, body: str) -> Template:
        """Make a template of a text."""
        _check(body)
        return cls(uuid4(), account_id, body)


def _check(body: str) -> None:
    if not body.strip():
        raise InvalidTemplate("the body is empty: give the text of the message, or the template_id of one")
    if len(body) > BODY_CHARACTERS_MAX:
        raise InvalidTemplate(
            f"the body has {len(body):,} characters, and {BODY_CHARACTERS_MAX:,} are the limit: shorten it"
        )
    if "\0" in body or any("\ud800" <= character <= "\udfff" for character in body):
        raise InvalidTemplate("the body holds a NUL or a lone surrogate, which is no text: remove it")
