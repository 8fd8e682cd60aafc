"""The outbox: its events, who reads them and where each stands, and what did not succeed at once.

Frozen: it never reads the declared tables, so that it makes tomorrow what it made today. It names no
schema; the migrator points the search path at the one of OUTBOX_SCHEMA.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import UserDefinedType

revision = "outbox_0001"
down_revision = None
branch_labels = ("outbox",)
depends_on = None

CLOCK = sa.text("clock_timestamp()")
MOMENT = sa.DateTime(timezone=True)

# The first line; whatever has a digit in it, behind the name of the error's class, is three dots. As the server writes
# it.
ERROR_KIND = (
    """"left"(regexp_replace("left"(split_part(COALESCE(error_message, ''::text), chr(10), 1), 300), """
    "'(?<!^)[[:<:]][[:alnum:]_-]*[0-9][[:alnum:]_-]*'::text, '*'::text, 'g'::text), 200)"
)


class OfServer(UserDefinedType[Any]):
    """A type that the server has and SQLAlchemy has not."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: object) -> str:
        """Name it in DDL."""
        return self.name


def _column(name: str, kind: Any, comment: str, default: str | None = None) -> sa.Column[Any]:
    given = None if default is None else sa.text(default)
    return sa.Column(name, kind, nullable=False, server_default=given, comment=comment)


def _moment(name: str, comment: str) -> sa.Column[Any]:
    return sa.Column(name, MOMENT, nullable=False, server_default=CLOCK, comment=comment)


def _lease() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("lease_relay", sa.Uuid, comment="relay that holds it now"),
        sa.Column("lease_epoch", sa.BigInteger, comment="epoch of that relay's lease"),
    )


def upgrade() -> None:
    _events()
    _arrivals()
    _deliveries()
    _receipts()
    _subscriptions()
    _relays()
    _servers()
    _progress()
    _cursors()
    _past_cursors()
    _subject_keys()
    _views()


def _events() -> None:
    op.create_table(
        "outbox_events",
        sa.Column("position", sa.BigInteger, sa.Identity(always=True), comment="order of insertion"),
        _column("xid", OfServer("xid8"), "the transaction that wrote it", "pg_current_xact_id()"),
        _column("event_id", sa.Uuid, "the event's own id, a UUIDv7"),
        _column("occurred_at", MOMENT, "when it happened, by the application's clock"),
        _moment("created_at", "when the row was written"),
        _column("event_version", sa.Integer, "schema version of the payload"),
        _column("event_type", sa.Text, "stable wire name of the event"),
        sa.Column("aggregate_type", sa.Text, comment="wire name of the aggregate, if it is one's event"),
        sa.Column("aggregate_id", sa.Uuid, comment="id of the aggregate"),
        sa.Column(
            "aggregate_version", sa.BigInteger, comment="n for the n-th event of the aggregate, without gaps"
        ),
        _column("payload", JSONB, "the event's fields, nothing else"),
        _column("headers", JSONB, "context: who, which request, caused by what", "'{}'"),
        sa.Column("not_before", MOMENT, comment="it is handled from then on, outside its aggregate's order"),
        sa.Column("aggregate_key", sa.Text, comment="id of the aggregate as written, where that is no UUID"),
        sa.Column("source", sa.Text, comment="the queue that brought it; null: written here"),
        sa.Column(
            "sensitive",
            JSONB,
            comment="the payload's fields that nobody is shown, * for each of them; null: none",
        ),
        sa.CheckConstraint("position BETWEEN 1 AND 4611686018427387904", name="outbox_events_position_check"),
        sa.CheckConstraint(
            "created_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'",
            name="outbox_events_created_at_check",
        ),
        sa.PrimaryKeyConstraint("position", name="outbox_events_pkey"),
        sa.UniqueConstraint("event_id", name="outbox_events_event_id_key"),
        comment="Domain events, written in the transaction of their change; never updated.",
    )
    of_stream = ["aggregate_type", "aggregate_id", "aggregate_version"]
    op.create_index(
        "outbox_events_aggregate_stream_key",
        "outbox_events",
        of_stream,
        unique=True,
        postgresql_where=sa.text("source IS NULL"),
    )
    op.create_index(
        "outbox_events_queues_stream_key",
        "outbox_events",
        [*of_stream, "source"],
        unique=True,
        postgresql_where=sa.text("source IS NOT NULL"),
    )
    op.create_index("outbox_events_xid_position_idx", "outbox_events", ["xid", "position"])
    op.create_index(
        "outbox_events_causation_idx",
        "outbox_events",
        [sa.text("\"left\"(headers ->> 'causation_id'::text, 64)")],
        postgresql_where=sa.text("headers ? 'causation_id'::text"),
    )


def _arrivals() -> None:
    op.create_table(
        "outbox_arrivals",
        sa.Column(
            "position",
            sa.BigInteger,
            nullable=False,
            autoincrement=False,
            comment="where it stands for that queue, in the order of the log",
        ),
        _column("xid", OfServer("xid8"), "the transaction that wrote it", "pg_current_xact_id()"),
        _column("event_id", sa.Uuid, "the event, which was there"),
        _moment("created_at", "when the row was written"),
        sa.Column("aggregate_id", sa.Uuid, comment="id of its aggregate"),
        _column("event_type", sa.Text, "stable wire name of the event"),
        _column("source", sa.Text, "the queue that brought it"),
        sa.PrimaryKeyConstraint("position", name="outbox_arrivals_pkey"),
        sa.UniqueConstraint("event_id", "source", name="outbox_arrivals_event_id_source_key"),
        sa.ForeignKeyConstraint(
            ["event_id"], ["outbox_events.event_id"], name="outbox_arrivals_event_id_fkey"
        ),
        comment="Events that were in the log already when a queue brought them: where they stand for its handlers.",
    )
    op.create_index("outbox_arrivals_xid_position_idx", "outbox_arrivals", ["xid", "position"])


def _deliveries() -> None:
    op.create_table(
        "outbox_deliveries",
        _column("event_id", sa.Uuid, "the event"),
        _column(
            "position",
            sa.BigInteger,
            "where the event stands in the log for this handler",
        ),
        _moment("created_at", "when the row was written"),
        _moment("available_at", "not before this time does it run"),
        _moment("updated_at", "when the row last changed"),
        _column("attempts", sa.Integer, "failures so far", "0"),
        _column("takeovers", sa.Integer, "how often it was found unfinished by a relay that vanished", "0"),
        _column(
            "alone",
            sa.Boolean,
            "runs while nothing else does: a relay that vanishes meanwhile was killed by it",
            "false",
        ),
        _column("handler", sa.Text, "stable name of the handler or publisher"),
        _column(
            "order_key",
            sa.Text,
            "aggregate_type:aggregate_id within which it keeps its turn, or the event's own id",
        ),
        _column("status", sa.Text, "waiting, leased, done, skipped or dead", "'waiting'"),
        _column(
            "on_dead",
            sa.Text,
            "whether later events wait behind it when it is dead (park) or pass (continue)",
            "'park'",
        ),
        sa.Column(
            "settled",
            sa.Boolean,
            sa.Computed(
                # As the server writes it, so that it can be compared with what is declared.
                "status = ANY (ARRAY['done'::text, 'skipped'::text]) "
                "OR status = 'dead'::text AND on_dead = 'continue'::text",
                persisted=True,
            ),
            nullable=False,
            comment="whether later events of its order_key may run",
        ),
        *_lease(),
        sa.Column("error_message", sa.Text, comment="newest error, null once done"),
        sa.Column(
            "error_kind",
            sa.Text,
            sa.Computed(ERROR_KIND, persisted=True),
            comment="that error without its numbers and ids, to count those that are alike",
        ),
        sa.PrimaryKeyConstraint("event_id", "handler", name="outbox_deliveries_pkey"),
        sa.CheckConstraint(
            "status IN ('waiting', 'leased', 'done', 'skipped', 'dead')",
            name="outbox_deliveries_status_check",
        ),
        sa.CheckConstraint("on_dead IN ('park', 'continue')", name="outbox_deliveries_on_dead_check"),
        comment="An event and a handler that did not succeed at once: its attempts, its turn, its outcome.",
    )
    op.create_index(
        "outbox_deliveries_heads",
        "outbox_deliveries",
        ["handler", "order_key", "position"],
        postgresql_where=sa.text("NOT settled"),
    )
    op.create_index(
        "outbox_deliveries_dead",
        "outbox_deliveries",
        ["handler", "error_kind", "position"],
        postgresql_where=sa.text("status = 'dead'"),
    )
    op.create_index(
        "outbox_deliveries_passed_over",
        "outbox_deliveries",
        ["handler", "position"],
        postgresql_where=sa.text("settled AND status <> 'done'"),
    )
    op.create_index(
        "outbox_deliveries_unfinished",
        "outbox_deliveries",
        ["position"],
        postgresql_where=sa.text("status IN ('waiting', 'leased', 'dead')"),
    )
    op.create_index(
        "outbox_deliveries_leased",
        "outbox_deliveries",
        ["lease_relay"],
        postgresql_where=sa.text("status = 'leased'"),
    )


def _receipts() -> None:
    op.create_table(
        "outbox_receipts",
        _column("event_id", sa.Uuid, "the event"),
        _moment("created_at", "when the row was written"),
        _column("handler", sa.Text, "stable name of the handler"),
        _column(
            "outcome", sa.Text, "done: its effect committed with this row; skipped: it never will", "'done'"
        ),
        sa.PrimaryKeyConstraint("event_id", "handler", name="outbox_receipts_pkey"),
        sa.CheckConstraint("outcome IN ('done', 'skipped')", name="outbox_receipts_outcome_check"),
        comment="What makes an effect happen once: written in the transaction of the handler's commit.",
    )


def _subscriptions() -> None:
    op.create_table(
        "outbox_subscriptions",
        _column("name", sa.Text, "stable name of the handler or publisher"),
        _column("kind", sa.Text, "handler or publisher"),
        _column("patterns", ARRAY(sa.Text), "event types, * for any part"),
        sa.Column("source", sa.Text, comment="the queue whose events it is for; null: those written here"),
        _column("ordered", sa.Boolean, "whether it takes an aggregate's events one after the other", "true"),
        _column(
            "bounded",
            sa.Boolean,
            "whether one relay has all of it, so that a bound of it is one of the fleet",
            "false",
        ),
        sa.Column("renamed_from", sa.Text, comment="the name that it had before, if its code still says so"),
        _moment("since", "when it was first carried"),
        sa.Column("paused_at", MOMENT, comment="since when an operator holds it"),
        sa.Column("retired_at", MOMENT, comment="since when it is due for no event"),
        _column("revision", sa.BigInteger, "raised by every change, so that relays see it", "1"),
        sa.PrimaryKeyConstraint("name", name="outbox_subscriptions_pkey"),
        sa.CheckConstraint("kind IN ('handler', 'publisher')", name="outbox_subscriptions_kind_check"),
        comment="Who is due for which events; written when a relay that carries it first starts.",
    )


def _relays() -> None:
    op.create_table(
        "outbox_relays",
        _column("id", sa.Uuid, "one for each process that relays"),
        _column("epoch", sa.BigInteger, "raised each time it had lost its lease"),
        _moment("started_at", "since when it lives"),
        _moment("renewed_at", "when it last said so"),
        _column("expires_at", MOMENT, "when others take over unless it says so again"),
        _column("process_id", sa.Integer, "process id on its host"),
        _column("host", sa.Text, "where it runs"),
        _column("code_version", sa.Text, "version of the application, as it says"),
        _column(
            "abilities",
            JSONB,
            "per handler it carries, the newest version of each event type it can run",
            "'{}'",
        ),
        _column(
            "pauses",
            JSONB,
            "who stands still, and queues that give nothing; each with its reason and since when",
            "'{}'",
        ),
        _column(
            "takes_events", sa.Boolean, "whether cursors fall to it, as they do to one that serves", "true"
        ),
        sa.Column(
            "patterns",
            JSONB,
            comment="per handler it carries, the patterns it is subscribed by; null: older code does not say",
        ),
        sa.PrimaryKeyConstraint("id", name="outbox_relays_pkey"),
        comment="The leases of live relays, a row each.",
    )


def _servers() -> None:
    op.create_table(
        "outbox_servers",
        sa.Column("number", sa.Integer, sa.Identity(always=True), comment="by which progress names it"),
        _column("identifier", sa.Text, "the server's system_identifier"),
        _column("floor", sa.BigInteger, "position at or below which nothing can be late"),
        _moment("since", "when it was first found"),
        sa.PrimaryKeyConstraint("number", name="outbox_servers_pkey"),
        comment="By whose transaction ids places count: a restored or copied outbox has had several servers.",
    )


def _progress() -> None:
    op.create_table(
        "outbox_progress",
        _column("reader", sa.Uuid, "whose place it is"),
        _column("number", sa.BigInteger, "the newest counts"),
        _column("position", sa.BigInteger, "up to here all that the snapshot saw is passed"),
        _moment("recorded_at", "when"),
        _column("server", sa.Integer, "by whose transaction ids the snapshot counts"),
        _column("events", sa.BigInteger, "passed by this reader so far", "0"),
        _column("snapshot", OfServer("pg_snapshot"), "which transactions' events are passed"),
        sa.Column(
            "late_position", sa.BigInteger, comment="up to here late_snapshot counts, too; null: nowhere"
        ),
        sa.Column(
            "late_snapshot",
            OfServer("pg_snapshot"),
            comment="by which what was late is read, a batch at a time",
        ),
        sa.PrimaryKeyConstraint("reader", "number", name="outbox_progress_pkey"),
        comment="Where readers stood in the log, a row each time it was written down; never updated.",
    )
    op.create_index("outbox_progress_position", "outbox_progress", ["reader", "position", "number"])
    op.create_index("outbox_progress_recorded", "outbox_progress", ["reader", "recorded_at"])


def _cursors() -> None:
    op.create_table(
        "outbox_cursors",
        _column("subscription", sa.Text, "whose"),
        _column("shard", sa.Integer, "of which aggregates"),
        _column("reader", sa.Uuid, "its place is this reader's newest progress"),
        _column(
            "first_number",
            sa.BigInteger,
            "progress of the reader from which on it is this cursor's, too",
            "0",
        ),
        sa.Column("lease_relay", sa.Uuid, comment="relay that owns it"),
        sa.Column("lease_epoch", sa.BigInteger, comment="epoch of that relay's lease"),
        _column("takeovers", sa.Integer, "how many relays have vanished over it since it last moved", "0"),
        sa.Column("rewind_to", sa.BigInteger, comment="its owner is to go back to this position"),
        sa.PrimaryKeyConstraint("subscription", "shard", name="outbox_cursors_pkey"),
        comment="Who reads the log for whom: a row for each subscription and shard.",
    )
    op.create_index("outbox_cursors_lease", "outbox_cursors", ["lease_relay"])
    op.create_index("outbox_cursors_reader", "outbox_cursors", ["reader"])


def _past_cursors() -> None:
    op.create_table(
        "outbox_cursors_past",
        _column("subscription", sa.Text, "whose"),
        _column("shard", sa.Integer, "of which aggregates"),
        _column("reader", sa.Uuid, "with which it went"),
        _column("first_number", sa.BigInteger, "from this progress on"),
        _column("last_number", sa.BigInteger, "up to this"),
        _moment("until", "when it changed"),
        comment="With which readers cursors went before: the moments at which they passed an event.",
    )
    op.create_index("outbox_cursors_past_idx", "outbox_cursors_past", ["subscription", "shard", "until"])
    op.create_index("outbox_cursors_past_reader", "outbox_cursors_past", ["reader"])


def _subject_keys() -> None:
    op.create_table(
        "outbox_subject_keys",
        _column("id", sa.Uuid, "by which sealed fields name it"),
        _moment("created_at", "when something was first sealed with it"),
        sa.Column("forgotten_at", MOMENT, comment="when it was destroyed: what it sealed is forgotten"),
        _column("subject", sa.Text, "whose it is, as the events' own fields say it"),
        sa.Column(
            "master_key", sa.Text, comment="id of the master key that encrypts it; null once it is destroyed"
        ),
        sa.Column("wrapped", sa.Text, comment="the key, encrypted; null once it is destroyed"),
        sa.PrimaryKeyConstraint("id", name="outbox_subject_keys_pkey"),
        sa.CheckConstraint(
            "(forgotten_at IS NULL) = (wrapped IS NOT NULL) AND (wrapped IS NULL) = (master_key IS NULL)",
            name="outbox_subject_keys_forgotten_check",
        ),
        comment="A key for each subject, which encrypts the sealed fields of its events; to forget destroys it.",
    )
    op.create_index(
        "outbox_subject_keys_living",
        "outbox_subject_keys",
        ["subject"],
        unique=True,
        postgresql_where=sa.text("forgotten_at IS NULL"),
    )


EVENT_SHARD = "get_byte(uuid_send(coalesce(event.aggregate_id, event.event_id)), 15) % 32"
OF_CURSOR = f"cursor.subscription = subscription.name AND cursor.shard = {EVENT_SHARD}"
FLOOR = "(SELECT server.floor FROM outbox_servers AS server WHERE server.number = progress.server)"
IS_DUE = r"""(subscription.retired_at IS NULL AND subscription.source IS NOT DISTINCT FROM event.source AND EXISTS (
  SELECT FROM unnest(subscription.patterns) AS pattern
  WHERE event.event_type LIKE replace(replace(pattern, '_', '\_'), '*', '%')))"""


WHERE_IT_STANDS = "(SELECT entry.* FROM outbox_log AS entry WHERE entry.event_id = event.event_id) AS event"


def _is_passed(place: str, floor: str) -> str:
    return f"""(event.position <= {place}.position
      AND (event.position <= {floor} OR pg_visible_in_snapshot(event.xid, {place}.snapshot)
           OR coalesce(event.position <= {place}.late_position
                       AND pg_visible_in_snapshot(event.xid, {place}.late_snapshot), false)))"""


def _views() -> None:
    op.execute("""
        CREATE VIEW outbox_cursor_places AS
        SELECT cursor.subscription, cursor.shard, cursor.lease_relay AS owner, cursor.reader,
               least(place.position, cursor.rewind_to) AS position, place.snapshot, place.late_position,
               place.late_snapshot, place.server, place.recorded_at, server.floor
        FROM outbox_cursors AS cursor
        LEFT JOIN LATERAL (
          SELECT progress.position, progress.snapshot, progress.late_position, progress.late_snapshot,
                 progress.server, progress.recorded_at
          FROM outbox_progress AS progress
          WHERE progress.reader = cursor.reader ORDER BY progress.number DESC LIMIT 1) AS place ON true
        LEFT JOIN outbox_servers AS server ON server.number = place.server
    """)
    op.execute(
        "COMMENT ON VIEW outbox_cursor_places IS 'Where each subscription stands in the log, shard by shard.'"
    )
    op.execute("""
        CREATE VIEW outbox_log AS
        SELECT position, xid, source, event_id, event_type, aggregate_id, created_at FROM outbox_events
        UNION ALL
        SELECT position, xid, source, event_id, event_type, aggregate_id, created_at FROM outbox_arrivals
    """)
    op.execute(
        "COMMENT ON VIEW outbox_log IS "
        "'Where each event stands in the log: where it was written, and for each queue that brought it again.'"
    )
    op.execute(f"""
        CREATE VIEW outbox_status AS
        SELECT event.event_id, outcome.status, delivery.retry_count,
               CASE WHEN outcome.status IN ('delivered', 'dead') THEN {_settled_at()} END AS processed_at,
               delivery.error_message, event.position AS log_position
        {_became()}
    """)
    op.execute(
        "COMMENT ON VIEW outbox_status IS "
        "'What became of each event, over the subscriptions that are due for it.'"
    )
    op.execute(f"""
        CREATE VIEW outbox AS
        SELECT event.event_id AS id, event.event_type, {MASKED} AS payload, event.occurred_at,
               outcome.status = 'delivered' AS delivered,
               CASE WHEN outcome.status = 'delivered' THEN {_settled_at()} END AS delivered_at,
               delivery.retry_count
        {_became()}
    """)
    op.execute("COMMENT ON VIEW outbox IS 'The outbox for readers who ask only what is delivered.'")


IS_FAR_AHEAD = r"""EXISTS (
  WITH behind AS MATERIALIZED (
    SELECT source, place.position, ARRAY(
             SELECT replace(replace(pattern, '_', '\_'), '*', '%') FROM unnest(patterns) AS pattern) AS patterns
    FROM outbox_subscriptions AS subscription CROSS JOIN LATERAL (
      SELECT max(least(newest.position, cursor.rewind_to)) AS position
      FROM (SELECT DISTINCT reader, rewind_to FROM outbox_cursors WHERE subscription = name) AS cursor
      CROSS JOIN LATERAL (
        SELECT progress.position FROM outbox_progress AS progress
        WHERE progress.reader = cursor.reader ORDER BY progress.number DESC LIMIT 1) AS newest) AS place
    WHERE subscription.retired_at IS NULL ORDER BY place.position)
  SELECT FROM behind WHERE event.position > behind.position AND behind.source IS NOT DISTINCT FROM event.source
    AND event.event_type LIKE ANY (behind.patterns))"""


MASKED = """CASE
  WHEN jsonb_typeof(event.payload) <> 'object' THEN '"***"'
  WHEN event.sensitive IS NULL AND NOT event.payload ? '$sealed' THEN event.payload
  ELSE (
    SELECT coalesce(jsonb_object_agg(field.key, CASE
        WHEN kept.sensitive ? field.key OR kept.sealed ? field.key OR field.value ? '$sealed'
          OR ((kept.is_strange OR kept.sensitive ? '*')
              AND field.key NOT IN ('event_id', 'occurred_at', 'eventId', 'occurredOn', 'eventVersion'))
        THEN '"***"' ELSE field.value END), jsonb_build_object())
    FROM (
      SELECT CASE jsonb_typeof(event.payload -> '$sealed') WHEN 'object' THEN event.payload -> '$sealed'
               ELSE jsonb_build_object() END AS sealed,
             coalesce(jsonb_typeof(event.payload -> '$sealed') <> 'object', false) AS is_strange,
             CASE jsonb_typeof(event.sensitive) WHEN 'object' THEN event.sensitive || jsonb_build_object() ELSE (
               SELECT coalesce(jsonb_object_agg(name, true), jsonb_build_object())
               FROM jsonb_array_elements_text(jsonb_build_array() || event.sensitive) AS name WHERE name IS NOT NULL
             ) END AS sensitive OFFSET 0) AS kept
    CROSS JOIN LATERAL jsonb_each((event.payload - '$sealed') || kept.sealed) AS field
  ) END"""
OF_ONE_WHO_IS_DUE = """
  FROM outbox_deliveries AS delivery
  WHERE delivery.event_id = event.event_id AND (delivery.status = 'leased' OR NOT EXISTS (
    SELECT FROM outbox_subscriptions AS subscription
    WHERE subscription.name = delivery.handler AND subscription.retired_at IS NOT NULL))"""


def _became() -> str:
    return f"""
        FROM outbox_events AS event
        CROSS JOIN LATERAL (
          SELECT CASE
            WHEN event.source IS NULL
              AND NOT EXISTS (SELECT FROM outbox_subscriptions WHERE source IS NULL) THEN 'pending'
            WHEN {IS_FAR_AHEAD} THEN 'pending'
            WHEN EXISTS (
              SELECT FROM outbox_subscriptions AS subscription CROSS JOIN {WHERE_IT_STANDS}
              WHERE {IS_DUE} AND (
                SELECT {_is_passed("cursor", "cursor.floor")} FROM outbox_cursor_places AS cursor
                WHERE {OF_CURSOR}) IS NOT TRUE) THEN 'pending'
            ELSE (
              SELECT CASE WHEN bool_or(status IN ('waiting', 'leased')) THEN 'open'
                          WHEN bool_or(status = 'dead') THEN 'dead' ELSE 'delivered' END
              {OF_ONE_WHO_IS_DUE}) END AS status OFFSET 0) AS outcome
        CROSS JOIN LATERAL (
          SELECT coalesce(max(attempts), 0) AS retry_count, max(updated_at) AS updated_at,
                 (array_agg(error_message ORDER BY updated_at DESC)
                    FILTER (WHERE error_message IS NOT NULL AND (NOT settled OR status = 'dead')))[1] AS error_message
          {OF_ONE_WHO_IS_DUE} AND outcome.status IS NOT NULL) AS delivery
    """  # noqa: S608 - the words are ours


def _settled_at() -> str:
    return f"coalesce(greatest(delivery.updated_at, ({_passed_at()})), event.created_at)"


def _passed_at() -> str:
    return f"""
        SELECT max(pass.recorded_at)
        FROM outbox_subscriptions AS subscription CROSS JOIN {WHERE_IT_STANDS}
        CROSS JOIN LATERAL (
          SELECT CASE WHEN step.number = first.number OR EXISTS (
            SELECT FROM outbox_progress AS before
            WHERE before.reader = stretch.reader AND before.number = step.number - 1) THEN step.recorded_at
                 END AS recorded_at,
                 step.number = first.number AND NOT EXISTS (
            SELECT FROM outbox_cursors_past AS cursor
            WHERE {OF_CURSOR} AND cursor.until < stretch.until) AS at_its_beginning
          FROM (
            SELECT reader, first_number, 9223372036854775807 AS last_number, 'infinity'::timestamptz AS until
            FROM outbox_cursors AS cursor WHERE {OF_CURSOR}
            UNION ALL
            SELECT reader, first_number, last_number, until FROM outbox_cursors_past AS cursor
            WHERE {OF_CURSOR} AND cursor.until >= event.created_at
            ORDER BY until) AS stretch
          CROSS JOIN LATERAL (
            SELECT progress.number, progress.position FROM outbox_progress AS progress
            WHERE progress.reader = stretch.reader AND progress.number >= stretch.first_number
            ORDER BY progress.number LIMIT 1) AS first
          CROSS JOIN LATERAL (
            SELECT progress.number, progress.position, progress.snapshot, progress.late_position,
                   progress.late_snapshot, {FLOOR} AS floor
            FROM outbox_progress AS progress
            WHERE progress.reader = stretch.reader AND progress.number <= stretch.last_number
            ORDER BY progress.number DESC LIMIT 1) AS last
          CROSS JOIN LATERAL (
            SELECT progress.number, progress.recorded_at FROM outbox_progress AS progress
            WHERE progress.reader = stretch.reader AND progress.number BETWEEN first.number AND last.number
              AND progress.position BETWEEN greatest(event.position, first.position) AND last.position
              AND {_is_passed("progress", FLOOR)}
            ORDER BY progress.position, progress.number LIMIT 1) AS step
          WHERE {_is_passed("last", "last.floor")}
          ORDER BY stretch.until LIMIT 1) AS pass
        WHERE {IS_DUE} AND NOT pass.at_its_beginning
    """  # noqa: S608 - the words are ours


def downgrade() -> None:
    for view in ("outbox", "outbox_status", "outbox_log", "outbox_cursor_places"):
        op.execute(f"DROP VIEW {view}")
    op.drop_table("outbox_subject_keys")
    for table in ("cursors_past", "cursors", "progress", "servers", "relays", "subscriptions", "receipts"):
        op.drop_table(f"outbox_{table}")
    op.drop_table("outbox_deliveries")
    op.drop_table("outbox_arrivals")
    op.drop_table("outbox_events")
