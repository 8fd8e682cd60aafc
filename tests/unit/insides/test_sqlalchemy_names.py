"""Whether the installed SQLAlchemy has inside what capture relies on; where it has not, mend sqlalchemy_inside.py."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, QueuePool, event, select
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_cursor
from sqlalchemy.orm import Session, SessionTransaction, loading
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.orm.context import QueryContext

from outbox_kernel.infrastructure.outbox import sqlalchemy_inside as inside
from tests.unit.insides.things import Thing, heard_in, options_of_lazy_load
from tests.unit.insides.versions import is_known, required

MODULE = "infrastructure/outbox/sqlalchemy_inside.py"
INSTALLED = version("sqlalchemy")


# --- the versions -------------------------------------------------------------------------------------


def test_the_version_installed_is_one_that_it_is_known_to_hold_for() -> None:
    assert is_known(INSTALLED, inside.KNOWN_FROM, inside.KNOWN_UP_TO), (
        f"SQLAlchemy {INSTALLED} is installed, and {MODULE} is known to hold from {inside.KNOWN_FROM} to "
        f"{inside.KNOWN_UP_TO}: where this file, tests/integration/capture and the properties pass, move KNOWN_UP_TO"
    )


def test_no_older_version_is_let_in_than_it_is_known_to_hold_for() -> None:
    assert required("sqlalchemy") == f"sqlalchemy[asyncio]>={inside.KNOWN_FROM}", (
        f"pyproject.toml asks for another SQLAlchemy than {MODULE} is known to hold for"
    )


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ("2.0.39", False),
        ("2.0.40", True),
        ("2.1.0b1", True),
        ("2.1.99", True),
        ("2.2.0", False),
        ("3.0", False),
    ],
)
def test_the_last_version_is_meant_with_all_its_corrections(installed: str, expected: bool) -> None:
    assert is_known(installed, "2.0.40", "2.1") is expected


# --- what is used is there ----------------------------------------------------------------------------


@pytest.fixture
def owners(session: Session) -> dict[str, Any]:
    """One of each kind that has private names, as the lists call it."""
    session.add(thing := Thing(id=1))
    connection = session.connection()
    told = options_of_lazy_load(session)
    return {
        "Session": session,
        "SessionTransaction": session.get_transaction(),
        "Connection": connection,
        "Engine": connection.engine.execution_options(),
        "Dialect": connection.dialect,
        "QueuePool": QueuePool(lambda: None),  # type: ignore[arg-type]  # it connects to nothing
        "InstanceState": instance_state(thing),
        "ClauseElement": select(Thing),
        "IdentityMap": session.identity_map,
        "loading": loading,
        "execution_options": SimpleNamespace(**told["execution_options"]),
        "load_options": QueryContext.default_load_options,
        "AsyncAdapt_asyncpg_cursor": AsyncAdapt_asyncpg_cursor,
        "ClassManager": Thing,
        "instance": thing,
        "QueryableAttribute": Thing.told,
    }


@pytest.mark.parametrize("name", inside.USED)
def test_a_name_that_is_used_is_there(name: str, owners: dict[str, Any]) -> None:
    owner, _, attribute = name.partition(".")
    assert hasattr(owners[owner], attribute), (
        f"SQLAlchemy {INSTALLED} has no {name} any more: mend {MODULE}, which has no public way, "
        f"since {inside.USED[name]}"
    )


# What is called, or overridden and called on, with the arguments that it is given.
CALLED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "Session._autobegin_t": ((), {}),
    "Session._is_clean": ((), {}),
    "Session._expire_state": (("state", "names"), {}),
    "SessionTransaction._begin": ((), {}),
    "SessionTransaction.commit": ((True,), {}),
    "SessionTransaction.rollback": ((), {"_capture_exception": True, "_to_root": True}),
    "SessionTransaction._prepare_impl": ((), {}),
    "SessionTransaction._restore_snapshot": ((), {"dirty_only": True}),
    "SessionTransaction._remove_snapshot": ((), {}),
    "SessionTransaction._connection_for_bind": (("bind", "options"), {}),
    "Connection._cursor_execute": (("cursor", "statement", "parameters", None), {}),
    "Connection._exec_single_context": (("dialect", "context", "statement", "parameters"), {}),
    "Connection._exec_insertmany_context": (("dialect", "context"), {}),
    "Connection._savepoint_impl": (("name",), {}),
    "Connection._rollback_to_savepoint_impl": (("name",), {}),
    "Connection._release_savepoint_impl": (("name",), {}),
}
CLASSES = {cls.__name__: cls for cls in (Session, SessionTransaction, Connection)}


@pytest.mark.parametrize("name", CALLED)
def test_what_is_called_takes_what_it_is_given(name: str) -> None:
    owner, _, method = name.partition(".")
    arguments, options = CALLED[name]
    try:
        inspect.signature(getattr(CLASSES[owner], method)).bind("self", *arguments, **options)
    except TypeError as error:
        pytest.fail(f"{name} of SQLAlchemy {INSTALLED} takes other arguments ({error}): mend {MODULE}")


# --- what is overridden is called ---------------------------------------------------------------------


@pytest.fixture
def heard(engine: Engine) -> dict[str, dict[str, Any]]:
    """What was heard in the course of a session that does a little of everything."""
    found: dict[str, dict[str, Any]] = {}
    maker: type[Session] = heard_in(Session, found)
    kind = heard_in(SessionTransaction, found)
    event.listen(maker, "after_transaction_create", lambda _, each: setattr(each, "__class__", kind))
    with maker(engine) as session:
        session.connection().__class__ = heard_in(Connection, found)
        session.add(thing := Thing(id=1))
        with session.begin_nested():
            session.scalar(select(1))
        savepoint = session.begin_nested()
        thing.name = "another"
        session.flush()
        savepoint.rollback()
        session.add_all([Thing(), Thing()])
        session.flush()
        session.expire(thing)
        session.get(Thing, 1)
        session.bulk_insert_mappings(Thing.__mapper__, [{"id": 9, "name": "of a bulk"}])
        inside.execute_bare(session.connection(), session.connection().connection.cursor(), "SELECT 1", ())
    return found


@pytest.mark.parametrize("name", inside.OVERRIDDEN)
def test_sqlalchemy_comes_through_what_is_overridden(name: str, heard: dict[str, dict[str, Any]]) -> None:
    assert name in heard, (
        f"SQLAlchemy {INSTALLED} does not come through {name} any more, {inside.OVERRIDDEN[name]}: mend the class "
        f"that overrides it, and {MODULE}"
    )
