"""What the functions of sqlalchemy_inside.py do, on the SQLAlchemy that is installed."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, QueuePool, create_engine, event, lambda_stmt, select, text
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_cursor
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.orm.attributes import instance_state

from outbox_kernel.infrastructure.outbox import sqlalchemy_inside as inside
from outbox_kernel.kernel.mapped import manager_of, mapper_state_of, stored_names
from tests.unit.insides.things import Part, Thing, options_of_lazy_load


def test_the_innermost_transaction_is_that_of_the_savepoint_and_of_the_flush(session: Session) -> None:
    assert inside.innermost_transaction(session) is None
    assert inside.begun_transaction(session) is session.get_transaction()
    savepoint = session.begin_nested()
    assert inside.innermost_transaction(session) is inside.begun_transaction(session) is savepoint
    seen: list[object] = []
    event.listen(session, "before_flush", lambda *_: seen.append(inside.innermost_transaction(session)))
    event.listen(session, "after_flush", lambda *_: seen.append(inside.innermost_transaction(session)))
    session.add(Thing())
    session.flush()
    assert seen[0] is savepoint
    assert isinstance(seen[1], SessionTransaction)
    assert seen[1].parent is savepoint


def test_new_and_deleted_objects_are_known_until_the_flush(session: Session) -> None:
    assert inside.has_nothing_to_flush(session)
    session.add_all(things := [Thing(id=2), Thing(id=1)])
    assert list(inside.new_objects(session)) == things
    assert inside.is_new(session, instance_state(things[0]))
    assert not inside.has_nothing_to_flush(session)
    session.flush()
    assert not inside.new_objects(session)
    assert not inside.is_new(session, instance_state(things[0]))
    session.delete(things[0])
    assert inside.has_deleted(session)
    session.flush()
    assert not inside.has_deleted(session)
    assert inside.has_nothing_to_flush(session)


def test_a_flush_is_known_from_inside(session: Session) -> None:
    seen: list[bool] = []
    event.listen(session, "before_flush", lambda *_: seen.append(inside.is_flushing(session)))
    session.add(Thing())
    session.flush()
    with inside.flushing(session):
        seen += [inside.is_flushing(session), inside.has_nothing_to_flush(session)]
    assert [*seen, inside.is_flushing(session)] == [True, True, False, False]


def test_a_failed_flush_leaves_a_transaction_that_can_only_be_rolled_back(session: Session) -> None:
    session.add(thing := Thing(id=1))
    session.flush()
    inside.fail_flush(session)
    assert not session.is_active
    session.rollback()
    assert thing not in session


def test_a_query_that_fills_a_collection_tells_whose(session: Session) -> None:
    filled = inside.filled_by(options_of_lazy_load(session))
    assert filled is not None
    assert filled.class_ is Thing
    assert inside.filled_by({}) is None


def test_a_transaction_is_prepared_once_all_is_flushed(session: Session) -> None:
    session.add(Thing())
    transaction = inside.begun_transaction(session)
    assert not inside.is_prepared(transaction)
    inside.prepare(transaction)
    assert inside.is_prepared(transaction)
    assert inside.has_nothing_to_flush(session)
    transaction.commit()
    assert not inside.is_prepared(transaction)


def test_a_transaction_that_is_connecting_serves_nobody_else(session: Session) -> None:
    transaction = session.begin()
    with inside.connecting(transaction):
        assert not transaction.is_active
    assert transaction.is_active


def test_a_transaction_takes_a_connection_and_ends_with_it(engine: Engine, session: Session) -> None:
    with engine.connect() as connection:
        transaction, own = session.begin(), connection.begin()
        assert not inside.is_connected(transaction, engine)
        inside.connect(transaction, connection, own)
        assert inside.is_connected(transaction, engine)
        assert session.connection() is connection
        assert inside.connections_committed_by(transaction) == {connection}
        session.commit()
        assert not own.is_active
        assert not connection.closed


def test_a_connection_that_was_joined_is_not_committed(engine: Engine) -> None:
    with engine.connect() as connection, connection.begin(), Session(connection) as session:
        session.connection()
        assert inside.connections_committed_by(inside.begun_transaction(session)) == set()


def test_a_savepoint_knows_what_it_has_stored_until_it_hands_that_over(session: Session) -> None:
    session.add(old := Thing(id=1))
    session.flush()
    savepoint = session.begin_nested()
    session.add(new := Thing(id=2))
    old.name = "another"
    session.flush()
    assert inside.has_stored(savepoint, instance_state(new))
    assert inside.has_stored(savepoint, instance_state(old))
    inside.hand_objects_over(savepoint)
    outer = savepoint.parent
    assert outer is not None
    assert inside.has_stored(outer, instance_state(new))
    session.rollback()
    assert new not in session


def test_what_is_taken_for_changed_a_savepoint_loads_anew(session: Session) -> None:
    session.add_all((thing := Thing(id=1), other := Thing(id=2)))
    session.commit()
    savepoint = session.begin_nested()
    session.delete(other)
    session.flush()
    assert set(inside.states_within(savepoint)) == {instance_state(thing), instance_state(other)}
    inside.take_for_changed(savepoint, [instance_state(thing)])
    savepoint.rollback()
    assert instance_state(thing).expired_attributes


def test_objects_are_restored_as_by_a_rollback(session: Session) -> None:
    session.add(thing := Thing(id=1))
    session.flush()
    inside.restore_objects(inside.begun_transaction(session))
    assert thing not in session
    assert instance_state(thing).transient


def test_loads_are_numbered_upwards(session: Session) -> None:
    session.add(Thing(id=1))
    session.commit()
    session.expunge_all()
    before = inside.next_load()
    loaded = instance_state(session.get_one(Thing, 1)).runid
    assert loaded is not None
    assert before < loaded < inside.next_load()


def test_an_object_is_expired_alone_and_counts_as_changed_no_longer(session: Session) -> None:
    session.add(thing := Thing(id=1, parts=[part := Part(id=1)]))
    session.commit()
    part.thing_id, thing.name = 1, "another"
    inside.expire_alone(instance_state(thing), session)
    assert "name" in instance_state(thing).expired_attributes
    assert not instance_state(part).expired_attributes
    assert thing not in session.dirty
    inside.expire_alone(instance_state(part))
    assert "thing_id" in instance_state(part).expired_attributes


def test_what_was_deleted_and_undone_is_as_new_as_any(session: Session) -> None:
    session.add(thing := Thing(id=1))
    session.flush()
    session.delete(thing)
    session.flush()
    session.rollback()
    state = instance_state(thing)
    inside.forget_deletion(state)
    inside.forget_deletion(state)
    session.add(thing)
    session.flush()
    assert state.persistent
    assert not state.deleted


def test_a_function_that_makes_a_statement_is_known_as_one() -> None:
    assert inside.is_lambda(lambda_stmt(lambda: select(Thing)))
    assert not inside.is_lambda(select(Thing))
    assert not inside.is_lambda(object())


@pytest.mark.parametrize("whose", ["connection", "engine", "dialect"])
def test_who_listens_is_known(whose: str, engine: Engine) -> None:
    with engine.connect() as connection:
        assert not inside.is_watched(connection)
        watched: Any = {"connection": connection, "engine": engine, "dialect": engine.dialect}[whose]
        event.listen(watched, "do_execute" if whose == "dialect" else "before_execute", lambda *_: None)
        assert inside.is_watched(connection)


def test_whether_statements_are_logged_is_known(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sqlalchemy.engine.Engine"), engine.connect() as connection:
        assert inside.is_watched(connection)


def test_a_bare_statement_fails_as_any_other(engine: Engine) -> None:
    with engine.connect() as connection:
        cursor: Any = connection.connection.cursor()
        inside.execute_bare(connection, cursor, "SELECT ?", (7,))
        assert cursor.fetchone() == (7,)
        with pytest.raises(OperationalError, match="no such table"):
            inside.execute_bare(connection, cursor, "SELECT * FROM nowhere", ())
        cursor.close()


def test_a_connection_is_made_of_its_dictionary_and_has_its_savepoint_there(engine: Engine) -> None:
    with engine.connect() as connection, connection.begin(), connection.begin_nested():
        another = object.__new__(type(connection))
        another.__dict__ = inside.parts_without_savepoint(connection)
        assert connection.in_nested_transaction()
        assert not another.in_nested_transaction()
        assert another.scalar(text("SELECT 7")) == 7


class Driver:
    def cursor(self) -> None:
        """An adapter's cursor asks for one, of other drivers than asyncpg."""


def test_a_cursor_calls_what_stands_before_its_driver() -> None:
    driver, stand_in = Driver(), Driver()
    adapted: Any = SimpleNamespace(_connection=driver, await_=None)
    cursor = AsyncAdapt_asyncpg_cursor(adapted)
    assert inside.stand_before_driver(cursor, stand_in) is driver
    # tests/integration/capture has it really call; this names the place where it no longer would.
    called = vars(AsyncAdapt_asyncpg_cursor)["_executemany"].__code__.co_names
    assert {"_connection", "executemany"} <= set(called)


def test_an_engine_with_options_is_traced_to_whose_pool_it_is(engine: Engine) -> None:
    derived = engine.execution_options(one=1).execution_options(two=2)
    assert inside.root_of(derived) is engine
    assert inside.root_of(engine) is engine


def test_an_unheard_listener_is_told_and_slows_nothing(engine: Engine) -> None:
    told: list[Engine] = []
    inside.listen_unheard(engine, "engine_disposed", told.append)
    with engine.connect() as connection:
        assert not inside.is_watched(connection)
    engine.dispose()
    assert told == [engine]


def test_a_listener_that_was_there_is_still_heard(engine: Engine) -> None:
    event.listen(engine, "before_execute", lambda *_: None)
    inside.listen_unheard(engine, "engine_disposed", lambda _: None)
    with engine.connect() as connection:
        assert inside.is_watched(connection)


@pytest.mark.parametrize("level", [None, "AUTOCOMMIT"])
def test_the_isolation_level_that_an_engine_was_made_with_is_known(level: Any) -> None:
    options = {} if level is None else {"isolation_level": level}
    assert inside.isolation_level_on_connect(create_engine("sqlite://", **options).dialect) == level


@pytest.mark.parametrize(("size", "overflow", "most"), [(2, 3, 5), (2, 0, 2), (2, -1, None), (0, 3, None)])
def test_how_many_connections_a_pool_may_have_is_known(size: int, overflow: int, most: int | None) -> None:
    pool = QueuePool(lambda: None, pool_size=size, max_overflow=overflow)  # type: ignore[arg-type]
    assert inside.connections_max(pool) == most


def test_a_pool_without_a_queue_may_have_any_number() -> None:
    assert inside.connections_max(NullPool(lambda: None)) is None  # type: ignore[arg-type]


class Bare:
    pass


def test_the_kernel_knows_a_mapped_class_by_what_its_mapper_keeps() -> None:
    assert manager_of(Thing) is not None
    assert manager_of(Bare) is None
    assert mapper_state_of(Bare()) is mapper_state_of(7) is None
    thing = Thing(id=1)
    assert mapper_state_of(thing) is instance_state(thing)


def test_the_kernel_tells_what_is_stored_from_what_is_composed() -> None:
    assert set(stored_names(Thing)) == {"id", "name", "size", "parts"}
