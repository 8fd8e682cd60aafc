"""A statement takes its values by name, and a run knows under what it commits."""

from __future__ import annotations

from uuid import uuid4

import pytest

from outbox_kernel.infrastructure.outbox.receipts import HandlerRun, Terms
from outbox_kernel.infrastructure.outbox.sql.named import Statement, arguments
from outbox_kernel.kernel.context import Delivery


def test_values_are_put_in_the_order_of_the_parameters() -> None:
    text, names = Statement("SELECT :second::int, :first, :second").in_schema(None)
    assert text == "SELECT $1::int, $2, $1"
    assert arguments(names, {"first": 1, "second": 2}) == [2, 1]


def test_one_value_too_many_is_told_with_all_names() -> None:
    with pytest.raises(TypeError, match=r"takes \['one'\], and got \['one', 'other'\]"):
        arguments(("one",), {"one": 1, "other": 2})


def test_a_run_that_no_relay_lets_commit_knows_its_event() -> None:
    delivery = Delivery(uuid4(), 0, 1, {})
    run = HandlerRun(delivery, Terms("bank.note", former="bank.old"))
    assert (run.event_id, run.delivery, run.handler) == (delivery.event_id, delivery, "bank.note")
    assert run.terms.names == ["bank.note", "bank.old"]
    assert not run.secrets()
