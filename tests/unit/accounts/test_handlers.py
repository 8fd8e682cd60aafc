"""What is logged of a new account, and what is not."""

from __future__ import annotations

import logging
from uuid import uuid4

import pytest

from contexts.accounts.events import AccountCreated, AccountRole
from contexts.accounts.handlers import LogAccountCreated
from outbox_kernel import get_handlers_for


def test_it_is_registered_under_a_stable_name() -> None:
    found = {each.name: each.handler for each in get_handlers_for(AccountCreated)}
    assert found["accounts.LogAccountCreated"] is LogAccountCreated


async def test_a_new_account_leaves_a_line_without_its_address(caplog: pytest.LogCaptureFixture) -> None:
    event = AccountCreated(uuid4(), "ada@example.org", AccountRole.MEMBER)
    with caplog.at_level(logging.INFO):
        await LogAccountCreated().handle(event)
    (record,) = caplog.records
    assert record.getMessage() == "account created"
    assert (record.__dict__["account_id"], record.__dict__["role"]) == (str(event.account_id), "member")
    assert "ada@" not in repr(record.__dict__)
