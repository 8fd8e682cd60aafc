"""Every error can go to another process and come back with its sentence and its data (K)."""

import copy
import inspect
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from outbox_kernel.infrastructure import errors as infrastructure_errors
from outbox_kernel.kernel import errors as kernel_errors
from outbox_kernel.kernel.errors import KernelError

ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "AggregateIdTaken": (("a sentence",), {"aggregate_type": "wallet", "aggregate_id": UUID(int=1)}),
    "ArgumentRefused": (("settings", "is of type dict"), {}),
    "BadContext": (("contexts.shop", "a sentence"), {}),
    "BadMigration": (("outbox", "a sentence"), {}),
    "BadSetting": (("OUTBOX_SCHEMA", "a sentence"), {}),
    "ConcurrencyError": (("a sentence",), {"aggregate_type": "wallet", "aggregate_id": UUID(int=1)}),
    "DefinedTwice": (("UnitOfWork", "contexts.shop", None), {}),
    "DiscoveryError": (({"shop.handlers": ValueError("a sentence")},), {}),
    "EngineRefused": (("psycopg",), {}),
    "FieldNotOpened": (("bank.opened", UUID(int=1), "owner", "it was changed"), {}),
    "MasterKeyUnfit": (("2026-10", "is not in OUTBOX_MASTER_KEYS: add it"), {}),
    "MissingExtra": (("http", "the API"), {}),
    "NoStoreToWaitIn": (("cart.left_behind", datetime(2126, 1, 2, tzinfo=UTC)), {}),
    "ProjectElsewhere": ((Path("elsewhere"),), {}),
    "RetryAfter": ((5, "busy"), {}),
    "SecondCommit": (("bank.Ledger", UUID(int=1)), {}),
    "StaleAggregate": (("a sentence",), {"field": "owner"}),
    "TablesMissing": (('database "shop"', ["outbox_events"]), {}),
    "Unavailable": (("payments", "503"), {}),
    "UnserializableEvent": (("opened", "owner", "holds a NUL"), {}),
    "WrongEncoding": (('database "shop"', "LATIN1"), {}),
}

ERRORS = sorted(
    {
        found
        for module in (kernel_errors, infrastructure_errors)
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, KernelError)
    },
    key=lambda found: found.__name__,
)


@pytest.mark.parametrize(
    "restore",
    [
        lambda error: pickle.loads(pickle.dumps(error)),  # noqa: S301 - what is pickled here is our own
        copy.copy,
        copy.deepcopy,
    ],
)
@pytest.mark.parametrize("cls", ERRORS)
def test_an_error_comes_back_with_its_sentence_and_its_data(cls: type[KernelError], restore: Any) -> None:
    arguments, named = ARGUMENTS.get(cls.__name__, (("a sentence",), {}))
    error = cls(*arguments, **named)
    error.add_note("while the shop was open")
    back = restore(error)
    assert type(back) is cls
    assert (str(back), back.args) == (str(error), error.args)
    assert repr(vars(back)) == repr(vars(error))
    assert getattr(back, "msg", None) == getattr(error, "msg", None)
