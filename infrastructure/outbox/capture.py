"""The interceptor: the outbox rows that commit are exactly the events of the state that commits (C1-C4).

Nothing is drained. Every recorded event stays on its aggregate with its number, and a flush that moves
the aggregate's row from version c to v writes the events numbered c+1 to v. So a rollback has nothing to
restore: when the row is at c again, the next flush derives the same events, or none, from what then holds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import attrs
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError, UnboundExecutionError
from sqlalchemy.orm import InstanceState, Session, attributes, object_mapper, object_session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.orm.base import PASSIVE_NO_INITIALIZE

from outbox_kernel.infrastructure.errors import PermissionDenied, SchemaNotMigrated
from outbox_kernel.infrastructure.outbox.capture_state import forget_state_of, known_state_of, state_of
from outbox_kernel.infrastructure.outbox.conflicts import constraint_name, detail_of, driver_error, id_taken
from outbox_kernel.infrastructure.outbox.drivers import check_connection
from outbox_kernel.infrastructure.outbox.emitted import carriers_among, refuse_without_rows, take_out
from outbox_kernel.infrastructure.outbox.executing import execute
from outbox_kernel.infrastructure.outbox.outgoing import Outgoing
from outbox_kernel.infrastructure.outbox.row_keys import await_key
from outbox_kernel.infrastructure.outbox.sealing.writing import sealed_rows
from outbox_kernel.infrastructure.outbox.sqlalchemy_inside import flushing, has_deleted, new_objects
from outbox_kernel.infrastructure.outbox.statements import (
    find_lived,
    insert_event,
    insert_events,
)
from outbox_kernel.infrastructure.outbox.table_columns import raise_forgotten_columns
from outbox_kernel.infrastructure.outbox.tables import AGGREGATE_STREAM_KEY, EVENT_ID_KEY
from outbox_kernel.infrastructure.outbox.transaction import events_written, note_write, note_written_events
from outbox_kernel.infrastructure.outbox.wake_up import wake_relays
from outbox_kernel.infrastructure.postgres.explain import explain
from outbox_kernel.infrastructure.telemetry.metrics import written
from outbox_kernel.infrastructure.telemetry.tracing import tracing
from outbox_kernel.kernel import catalogue
from outbox_kernel.kernel.aggregate import AggregateRoot, stale
from outbox_kernel.kernel.bus import in_order
from outbox_kernel.kernel.context import current_headers
from outbox_kernel.kernel.envelope import enveloped
from outbox_kernel.kernel.errors import KernelError, VersionMoved
from outbox_kernel.kernel.events import DomainEvent
from outbox_kernel.kernel.identity import stream_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection
    from sqlalchemy.orm import UOWTransaction

    from outbox_kernel.infrastructure.master_keys import MasterKeys
    from outbox_kernel.kernel.envelope import Envelope

# Made once: json.dumps makes a new one per call when it is told anything.
_encode = json.JSONEncoder(ensure_ascii=False).encode


@attrs.frozen
class Capture:
    """The listeners of one session class, the schema into which they write, and whom they tell."""

    schema: str | None = None
    channel: str | None = None
    master_keys: MasterKeys | None = attrs.field(default=None, eq=False)

    def before_flush(self, session: Session, _context: UOWTransaction, _instances: Any) -> None:
        """Write the events of all that this flush is about to store."""
        events, state, unkeyed = list[DomainEvent](), state_of(session), False
        for aggregate, row_version, version, is_new in _moves(session):
            if version != row_version:
                events += state.told_by(aggregate, row_version, version)
            if is_new:
                unkeyed |= await_key(aggregate)
            state.in_flush[instance_state(aggregate)] = version
        carriers = carriers_among(new_objects(session))
        if carriers:
            # One that was dispatched by hand before its aggregate was added is among these already (K6).
            recorded = {id(event) for event in events}
            others = [carrier.event for carrier in carriers if id(carrier.event) not in recorded]
            refuse_without_rows(others)
            events += others
        if unkeyed:
            state.unkeyed = events
        elif events:
            outgoing = self._outgoing(session, events, state.in_flush)
            if len(events) == 1 and new_objects(session) and outgoing.may_wait():
                state.outgoing = outgoing
            else:
                outgoing.write()
        if unkeyed or not events:
            _check_silent(session)
        take_out(session, carriers)

    def after_flush(self, session: Session, _context: UOWTransaction) -> None:
        """Write what waited for a row to make its key, and what other listeners recorded after ours."""
        state = state_of(session)
        state.write_outgoing()
        events, late = [*state.unkeyed, *state.late], list[InstanceState[Any]]()
        silent = list[AggregateRoot]()
        for aggregate, row_version, version, is_new in _moves(session):
            if is_new and aggregate._key_rule.may_come_later:
                aggregate._key_events()
            written = state.in_flush.get(instance_state(aggregate), row_version)
            if version != written:
                _check_row(session, aggregate, version)
                events += state.told_by(aggregate, written, version)
                late.append(instance_state(aggregate))
            state.note(aggregate, version, born=is_new)
            if is_new and not version:
                silent.append(aggregate)
        if events:
            self._outgoing(session, events, state.in_flush if state.unkeyed else late).write()
        if silent:
            self._check_first_lives(session, silent)
        state.late.clear()
        state.unkeyed = []
        state.settled = True
        note_write(session)

    def after_flush_postexec(self, session: Session, _context: UOWTransaction) -> None:
        """Let events be recorded again: what changes from now on is for the next flush."""
        state_of(session).settled = False

    def write_late(self, session: Session) -> None:
        """Write what was emitted inside a flush after `after_flush`, or in one that had nothing else to write."""
        state = state_of(session)
        if not (state.late or state.outgoing):
            return
        # A session that sends what it writes to one engine and what it reads to others knows a flush by this.
        with flushing(session):
            state.write_outgoing()
            if state.late:
                self._outgoing(session, state.late, []).write()

    def _outgoing(
        self, session: Session, events: Sequence[DomainEvent], aggregates: Collection[InstanceState[Any]]
    ) -> Outgoing:
        envelopes = [enveloped(event) for event in in_order(events)]
        context, written_in = current_headers(), state_of(session)
        if (spans := tracing.spans()) is not None:
            context, creating = spans.create(context, envelopes)
            written_in.spans.append(creating)
        headers = _encode(dict(context)) if context else "{}"
        connection = _connection(session, aggregates)
        schema = self._schema_on(connection)
        envelopes = self._sealed(envelopes, connection, schema)
        values: tuple[Any, ...]
        if len(envelopes) == 1:
            statement, values = insert_event(schema), (*envelopes[0], headers)
        else:
            columns = [list(column) for column in zip(*envelopes, strict=True)]
            statement, values = insert_events(schema), (*columns, headers)
        written_in.wrote_by = connection.engine
        note_written_events(session, len(envelopes))
        return Outgoing(connection, statement, values, _explain)

    def _sealed(
        self, envelopes: list[Envelope], connection: Connection, schema: str | None
    ) -> list[Envelope]:
        try:
            return sealed_rows(envelopes, connection, schema, self.master_keys)
        except DBAPIError as error:
            _explain(error, connection)
            raise

    def _check_first_lives(self, session: Session, silent: Sequence[AggregateRoot]) -> None:
        """Refuse an id that has events, as the first event would be: it could never be stored (C4).

        After the rows are written, since whoever deletes the one that lived before has been waited for by then.
        """
        names = catalogue.definitions.aggregate_by_class
        # Class by class, since those may be of several databases.
        for cls in names.keys() & set(map(type, silent)):
            born = [each for each in silent if type(each) is cls]
            found = (stream_key(getattr(each, "id", None), each._key_rule.kinds) for each in born)
            keys = dict(filter(None, found))
            connection = _connection(session, [instance_state(born[0])])
            query = find_lived(self._schema_on(connection))
            try:
                lived = execute(connection, query, (names[cls], [*keys]))
            except DBAPIError as error:
                _explain(error, connection)
                raise
            if lived is not None:
                raise id_taken(names[cls], lived, keys.get(lived))

    def _schema_on(self, connection: Connection) -> str | None:
        """Return where the outbox is for a connection: one that moves the application's tables moves it with them."""
        moved = connection.get_execution_options().get("schema_translate_map")
        return moved.get(self.schema, self.schema) if moved else self.schema

    def after_commit(self, session: Session) -> None:
        """Let go of the events that are durable now, and tell the relays."""
        if session.get_nested_transaction() is not None:
            return  # a savepoint's release makes nothing durable
        state = known_state_of(session)
        if state is None:
            return  # nothing was captured, as in most runs of handlers
        state.end_spans(are_durable=True)
        written.add(events_written(session))
        for known, flushed in state.flushed.items():
            aggregate = known.obj()
            # Not those that a savepoint's rollback has made new again: their story is yet to be stored.
            if aggregate is not None and object_session(aggregate) is session:
                aggregate._forget_events(up_to=flushed.version)
        if state.wrote_by is not None and self.channel is not None:
            wake_relays(state.wrote_by, self.channel)


def _explain(error: DBAPIError, connection: Connection) -> None:
    """Say in a sentence what is wrong with our table; what else may fail is for the session's user to catch."""
    _hide_payloads(error)
    raise_forgotten_columns(error)  # of the row that an event goes with
    refusal = explain(error, connection.engine.url)
    if isinstance(refusal, SchemaNotMigrated | PermissionDenied):
        raise refusal from error


def _hide_payloads(error: DBAPIError) -> None:
    """Take out of an error, of whatever engine, what it shows of payloads: they may hold secrets (K11)."""
    error.hide_parameters = True
    if constraint_name(error) in (EVENT_ID_KEY, AGGREGATE_STREAM_KEY):
        return  # whose detail names ids, which the sentence about a conflict is made of
    # Of any other constraint the server quotes the failing row, and the driver's error and its wrappers repeat it.
    detail = detail_of(error)
    if detail:
        told: Any = driver_error(error)
        if hasattr(told, "detail"):
            told.detail = None
        for each in (error, cast("BaseException", error.orig)):
            each.args = (str(each.args[0]).replace(f"\nDETAIL:  {detail}", ""),)


def _connection(session: Session, aggregates: Collection[InstanceState[Any]]) -> Connection:
    """Return the connection on which these aggregates' rows are written."""
    # What the flush itself gives to `get_bind` for their rows.
    mappers = [manager.mapper.base_mapper for manager in {each.manager for each in aggregates}]
    if len(mappers) > 1 and len({id(session.get_bind(mapper)) for mapper in mappers}) > 1:
        raise KernelError(
            "one flush holds aggregates of several databases, so their rows and events cannot share a transaction; "
            "use one session per database"
        )
    try:
        # Past the captured session's own, which takes note of who may write.
        connection = Session.connection(session, bind_arguments={"mapper": mappers[0]} if mappers else None)
    except UnboundExecutionError as error:
        raise KernelError(
            "this session has `binds` and no default, so an emitted event has no database to go to; "
            "make the session with `bind=` as well, the engine of the outbox"
        ) from error
    check_connection(connection)
    return connection


def _check_silent(session: Session) -> None:
    """Refuse a connection before rows are written through it, of which an event may tell that is recorded later."""
    touched = (*new_objects(session), *session.dirty, *session.deleted)
    aggregate = next((obj for obj in touched if isinstance(obj, AggregateRoot)), None)
    if aggregate is not None:
        _connection(session, [instance_state(aggregate)])


def after_transaction_end(session: Session, transaction: Any) -> None:
    """Begin anew when the outermost transaction has ended, either way."""
    if transaction.parent is None:
        forget_state_of(session)


def _moves(session: Session) -> Iterator[tuple[AggregateRoot, int, int, bool]]:
    """Yield each aggregate with the version of its row, the version it is about to have, and whether it is new."""
    for obj in new_objects(session):
        if isinstance(obj, AggregateRoot):
            yield obj, 0, _version(obj), True
    if not (session.identity_map.check_modified() or has_deleted(session)):
        return
    for obj in (*session.dirty, *session.deleted):
        if isinstance(obj, AggregateRoot) and (change := version_change(obj)):
            yield obj, *change, False


def _version(aggregate: AggregateRoot) -> int:
    version = aggregate.__dict__.get("version")
    if version is None:
        raise stale(aggregate)
    return cast("int", version)


def version_change(aggregate: AggregateRoot) -> tuple[int, int] | None:
    """Return the version of the aggregate's row and the one it is about to have, if they differ."""
    added, _, deleted = attributes.get_history(aggregate, "version", PASSIVE_NO_INITIALIZE)
    if not added:
        return None
    if not deleted:
        raise VersionMoved(
            f"the version of {aggregate!r} was set without being loaded; only record() may raise it"
        )
    return deleted[0], added[0]


def _check_row(session: Session, aggregate: AggregateRoot, version: int) -> None:
    """Refuse an event that was recorded after its aggregate's row was written: the row would not have it."""
    if aggregate in session.deleted:
        return
    column = object_mapper(aggregate).columns["version"]
    connection = Session.connection(session, bind_arguments={"mapper": object_mapper(aggregate).base_mapper})
    if connection.scalar(select(column).where(*key_of(aggregate))) != version:
        raise recorded_too_late(aggregate)


def key_of(aggregate: object) -> list[ColumnElement[bool]]:
    """Return the conditions that find the aggregate's row."""
    mapper = object_mapper(aggregate)
    values = mapper.primary_key_from_instance(aggregate)
    return [column == value for column, value in zip(mapper.primary_key, values, strict=True)]


def recorded_too_late(aggregate: object) -> VersionMoved:
    """Return the error for a record() inside a flush that has stored the aggregate's row already."""
    return VersionMoved(
        f"{aggregate!r} recorded an event inside a flush that had already written it; "
        "record in the use case, or in a before_flush listener"
    )
