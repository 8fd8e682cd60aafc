"""The views of the log: where each subscription stands, and what became of an event.

They are made by `create_all`, and by the migrations, which have their own frozen text. What concerns an event is found
by index, so that a page of events costs the same however many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import event as events
from sqlalchemy import text

from outbox_kernel.infrastructure.outbox.sql import in_schema
from outbox_kernel.infrastructure.outbox.sql.fragments import IS_FAR_AHEAD, is_due, is_passed
from outbox_kernel.infrastructure.outbox.sql.passing import OF_CURSOR, PASS
from outbox_kernel.infrastructure.outbox.statements import qualified
from outbox_kernel.kernel.wire.records import MASK
from outbox_kernel.kernel.wire.sensitive import EVERY_FIELD, PLAIN_KEYS

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table
    from sqlalchemy.engine import Connection

PLACES_VIEW = "outbox_cursor_places"
LOG_VIEW = "outbox_log"
STATUS_VIEW = "outbox_status"
OUTBOX_VIEW = "outbox"
LOG_VIEWS = (PLACES_VIEW, LOG_VIEW, STATUS_VIEW, OUTBOX_VIEW)
EVENT_STATES = ("pending", "open", "delivered", "dead")

COMMENTS = {
    PLACES_VIEW: "Where each subscription stands in the log, shard by shard.",
    LOG_VIEW: "Where each event stands in the log: where it was written, and for each queue that brought it again.",
    STATUS_VIEW: "What became of each event, over the subscriptions that are due for it.",
    OUTBOX_VIEW: "The outbox for readers who ask only what is delivered.",
}

# LATERAL with a LIMIT, which no planner turns into a join of all progress there is.
CURSOR_PLACES = """
SELECT cursor.subscription, cursor.shard, cursor.lease_relay AS owner, cursor.reader,
       least(place.position, cursor.rewind_to) AS position, place.snapshot, place.late_position, place.late_snapshot,
       place.server, place.recorded_at, server.floor
FROM {outbox_cursors} AS cursor
LEFT JOIN LATERAL (
  SELECT progress.position, progress.snapshot, progress.late_position, progress.late_snapshot, progress.server,
         progress.recorded_at
  FROM {outbox_progress} AS progress
  WHERE progress.reader = cursor.reader ORDER BY progress.number DESC LIMIT 1) AS place ON true
LEFT JOIN {outbox_servers} AS server ON server.number = place.server
"""

LOG = """
SELECT position, xid, source, event_id, event_type, aggregate_id, created_at FROM {outbox_events}
UNION ALL
SELECT position, xid, source, event_id, event_type, aggregate_id, created_at FROM {outbox_arrivals}
"""
_WHERE_IT_STANDS = (
    "(SELECT entry.* FROM {outbox_log} AS entry WHERE entry.event_id = event.event_id) AS event"
)

# What became of an event. Of a retired subscription nothing counts but what a relay has in its hands.
# Before anybody has subscribed to it, what is written here waits for who will. What a queue brings is for its handlers.
# By OFFSET 0 the outcome is worked out once, and not wherever it is named; and it comes first, so that of those that
# somebody asks for by it the others cost nothing more. No delivery is looked for by its status: what is dead has an
# index, which a planner that knows of none would walk for each event.
_OF_ONE_WHO_IS_DUE = """
  FROM {outbox_deliveries} AS delivery
  WHERE delivery.event_id = event.event_id AND (delivery.status = 'leased' OR NOT EXISTS (
    SELECT FROM {outbox_subscriptions} AS subscription
    WHERE subscription.name = delivery.handler AND subscription.retired_at IS NOT NULL))"""
_BECAME = f"""
FROM {{outbox_events}} AS event
CROSS JOIN LATERAL (
  SELECT CASE
    WHEN event.source IS NULL AND NOT EXISTS (SELECT FROM {{outbox_subscriptions}} WHERE source IS NULL) THEN 'pending'
    WHEN {IS_FAR_AHEAD} THEN 'pending'
    WHEN EXISTS (
      SELECT FROM {{outbox_subscriptions}} AS subscription CROSS JOIN {_WHERE_IT_STANDS}
      WHERE {is_due("subscription", "event")} AND (
        SELECT {is_passed("event", "cursor")} FROM {{outbox_cursor_places}} AS cursor
        WHERE {OF_CURSOR}) IS NOT TRUE) THEN 'pending'
    ELSE (
      SELECT CASE WHEN bool_or(status IN ('waiting', 'leased')) THEN 'open' WHEN bool_or(status = 'dead') THEN 'dead'
                  ELSE 'delivered' END {_OF_ONE_WHO_IS_DUE}) END AS status OFFSET 0) AS outcome
CROSS JOIN LATERAL (
  SELECT coalesce(max(attempts), 0) AS retry_count, max(updated_at) AS updated_at,
         (array_agg(error_message ORDER BY updated_at DESC)
            FILTER (WHERE error_message IS NOT NULL AND (NOT settled OR status = 'dead')))[1] AS error_message
  {_OF_ONE_WHO_IS_DUE} AND outcome.status IS NOT NULL) AS delivery
"""  # noqa: S608 - the words are ours
_PASSED_AT = f"""
SELECT max(pass.recorded_at)
FROM {{outbox_subscriptions}} AS subscription CROSS JOIN {_WHERE_IT_STANDS} CROSS JOIN LATERAL ({PASS}) AS pass
WHERE {is_due("subscription", "event")} AND NOT pass.at_its_beginning
"""  # noqa: S608 - the words are ours
_SETTLED_AT = f"coalesce(greatest(delivery.updated_at, ({_PASSED_AT})), event.created_at)"

# What an event says, for readers who know nothing of its class: without what is declared to be sensitive, and what is
# sealed. A payload that is no object, and each field where nobody knew which are sensitive, may be a secret as a whole.
# So may each field beside a `$sealed` that is no object: it is not ours, and nobody knows what it says is sealed.
# What is sealed is taken out of it once, and so are the names of what is sensitive: for each of a hundred thousand
# fields the row would be unpacked again. Both are made objects, in which a name is looked up: a list is walked.
MASKED = f"""CASE
  WHEN jsonb_typeof(event.payload) <> 'object' THEN '"{MASK}"'
  WHEN event.sensitive IS NULL AND NOT event.payload ? '$sealed' THEN event.payload
  ELSE (
    SELECT coalesce(jsonb_object_agg(field.key, CASE
        WHEN kept.sensitive ? field.key OR kept.sealed ? field.key OR field.value ? '$sealed'
          OR ((kept.is_strange OR kept.sensitive ? '{EVERY_FIELD}') AND field.key NOT IN {PLAIN_KEYS})
        THEN '"{MASK}"' ELSE field.value END), jsonb_build_object())
    FROM (
      SELECT CASE jsonb_typeof(event.payload -> '$sealed') WHEN 'object' THEN event.payload -> '$sealed'
               ELSE jsonb_build_object() END AS sealed,
             coalesce(jsonb_typeof(event.payload -> '$sealed') <> 'object', false) AS is_strange,
             CASE jsonb_typeof(event.sensitive) WHEN 'object' THEN event.sensitive || jsonb_build_object() ELSE (
               SELECT coalesce(jsonb_object_agg(name, true), jsonb_build_object())
               FROM jsonb_array_elements_text(jsonb_build_array() || event.sensitive) AS name WHERE name IS NOT NULL
             ) END AS sensitive OFFSET 0) AS kept
    CROSS JOIN LATERAL jsonb_each((event.payload - '$sealed') || kept.sealed) AS field
  ) END"""  # noqa: S608 - the words are ours

STATUS = f"""
SELECT event.event_id, outcome.status, delivery.retry_count,
       CASE WHEN outcome.status IN ('delivered', 'dead') THEN {_SETTLED_AT} END AS processed_at,
       delivery.error_message, event.position AS log_position
{_BECAME}
"""
OUTBOX = f"""
SELECT event.event_id AS id, event.event_type, {MASKED} AS payload, event.occurred_at,
       outcome.status = 'delivered' AS delivered,
       CASE WHEN outcome.status = 'delivered' THEN {_SETTLED_AT} END AS delivered_at,
       delivery.retry_count
{_BECAME}
"""


def log_views(schema: str | None = None) -> list[str]:
    """Return the statements that make the views."""
    made = zip(LOG_VIEWS, (CURSOR_PLACES, LOG, STATUS, OUTBOX), strict=True)
    return [
        statement
        for name, query in made
        for statement in (
            f"CREATE VIEW {qualified(name, schema)} AS {in_schema(query, schema)}",
            f"COMMENT ON VIEW {qualified(name, schema)} IS '{COMMENTS[name]}'",
        )
    ]


def with_log_views(metadata: MetaData, schema: str | None = None) -> None:
    """Complete `create_all` and `drop_all` of the tables with their views."""

    def create(_: MetaData, connection: Connection, tables: list[Table], **__: object) -> None:
        # Those that were not there: where nothing was made, the views are there too.
        if any(table.name == "outbox_cursors" for table in tables):
            for statement in log_views(schema):
                connection.execute(text(statement))

    def drop(_: MetaData, connection: Connection, **__: object) -> None:
        for name in reversed(LOG_VIEWS):
            connection.execute(text(f"DROP VIEW IF EXISTS {qualified(name, schema)}"))

    events.listen(metadata, "after_create", create)
    events.listen(metadata, "before_drop", drop)
