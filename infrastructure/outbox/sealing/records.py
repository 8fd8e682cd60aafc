"""Sealing what is written by hand: a row of the outbox as an object, in the flush of whatever session (K6, O6)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy.orm import object_session

from outbox_kernel.infrastructure.outbox.drivers import check_driver
from outbox_kernel.infrastructure.outbox.sealing.requiring import in_force
from outbox_kernel.infrastructure.outbox.sealing.writing import asks, sealed_rows
from outbox_kernel.kernel.wire.names import SEALED

if TYPE_CHECKING:
    from uuid import UUID

    from sqlalchemy import Connection
    from sqlalchemy.orm import Mapper, Session

    from outbox_kernel.infrastructure.master_keys import MasterKeys

_KEYS = "outbox_master_keys"


class _Row(NamedTuple):
    event_id: UUID
    event_type: str
    event_version: int
    payload: str


def use_master_keys(session: Session, masters: MasterKeys | None) -> None:
    """Let what is dispatched into a session be sealed with these, and not with those of the environment."""
    if masters is not None:
        session.info[_KEYS] = masters


def seal_record(mapper: Mapper[Any], connection: Connection, record: Any) -> None:
    """Seal the fields of one that is about to be inserted; a listener."""
    row = _Row(record.event_id, record.event_type, record.event_version, "")
    if not asks(row) or SEALED in record.payload:
        return
    check_driver(connection.dialect)
    session = object_session(record)
    given = None if session is None else session.info.get(_KEYS)
    table: Any = mapper.local_table
    moved = connection.get_execution_options().get("schema_translate_map") or {}
    rows = [row._replace(payload=json.dumps(record.payload))]
    [sealed] = sealed_rows(rows, connection, moved.get(table.schema, table.schema), in_force(given))
    record.payload = json.loads(sealed.payload)
