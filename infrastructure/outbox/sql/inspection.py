"""Inspecting: what an operator asks, none of it by reading the whole table of events (O1)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import (
    NOW,
    SOURCES,
    UNFINISHED,
    is_due,
    is_passed,
    shown,
)
from outbox_kernel.infrastructure.outbox.sql.named import Statement
from outbox_kernel.infrastructure.outbox.sql.passing import OF_CURSOR, PASS

# Who relays.
RELAYS = Statement(f"""
SELECT id, epoch, host, process_id, started_at, renewed_at, expires_at, code_version, abilities::text, pauses::text,
       patterns::text, expires_at > {NOW} AS live,
       extract(epoch FROM expires_at - {NOW})::float8 AS lease_seconds_left
FROM {{outbox_relays}} ORDER BY started_at, id
""")  # noqa: S608 - the rule is ours

# What waits, by what a relay needs to know to run it.
WAITING_KINDS = Statement("""
SELECT delivery.handler, event.event_type, event.event_version, count(*) AS deliveries,
       min(event.position) AS position, min(delivery.created_at) AS since
FROM {outbox_deliveries} AS delivery JOIN {outbox_events} AS event USING (event_id)
WHERE delivery.status = 'waiting' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
""")

# The aggregate types there are, hopping from one to the next.
_NEXT_TYPE = """(
    SELECT event.aggregate_type FROM {{outbox_events}} AS event
    WHERE event.aggregate_type <which> AND {} ORDER BY event.aggregate_type LIMIT 1)"""
_OF_EACH_SOURCE = f"least({', '.join(map(_NEXT_TYPE.format, SOURCES))}) AS aggregate_type"
AGGREGATE_TYPES = Statement(f"""
WITH RECURSIVE kind AS (
  SELECT {_OF_EACH_SOURCE.replace("<which>", "IS NOT NULL")}
  UNION ALL
  SELECT {_OF_EACH_SOURCE.replace("<which>", "> kind.aggregate_type")}
  FROM kind WHERE kind.aggregate_type IS NOT NULL
)
SELECT aggregate_type FROM kind WHERE aggregate_type IS NOT NULL
""")  # noqa: S608 - ours

# Find the position from which on everything was stored since a moment, by halves: positions go up with it.
SINCE = Statement("""
WITH RECURSIVE search AS (
  SELECT min(position) AS low, max(position) + 1 AS high, 0 AS steps FROM {outbox_log}
  UNION ALL
  SELECT CASE WHEN halfway.is_before THEN halfway.position + 1 ELSE low END,
         CASE WHEN halfway.is_before THEN high ELSE low + (high - low) / 2 END, steps + 1
  FROM search CROSS JOIN LATERAL (
    SELECT position, created_at < :since AS is_before FROM {outbox_log}
    WHERE position >= low + (high - low) / 2 ORDER BY position LIMIT 1) AS halfway
  WHERE low < high
)
SELECT coalesce((SELECT position FROM {outbox_log} WHERE position >= low ORDER BY position LIMIT 1), low, 1)
         AS position
FROM search ORDER BY steps DESC LIMIT 1
""")

# What became of `event`, for a few of them.
BECAME = """
CROSS JOIN LATERAL (
  SELECT became.status, became.retry_count, became.processed_at, became.error_message
  FROM {outbox_status} AS became WHERE became.event_id = event.event_id LIMIT 1) AS became
"""
SUMMARY = f"""
event.position, event.event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_key,
aggregate_version, source, became.status, became.retry_count, {shown("occurred_at")} AS occurred_at,
created_at, CASE WHEN not_before IS NOT NULL THEN {shown("not_before")} END AS not_before,
became.processed_at, became.error_message
"""
# One event, by its id or its position, with what it said.
EVENT = Statement(f"""
SELECT {SUMMARY}, payload::text AS payload, headers::text AS headers
FROM (
  SELECT * FROM {{outbox_events}} WHERE event_id = :event_id::uuid
  UNION ALL
  SELECT * FROM {{outbox_events}} WHERE position = :position::bigint
) AS event
{BECAME}
""")  # noqa: S608 - ours

# The events of an aggregate, by the indexes that have them together; its id comes in every reading.
_OF_SOURCE = (
    "(SELECT * FROM {{outbox_events}} WHERE aggregate_type = kind AND aggregate_id = id AND {} OFFSET 0)"
)
OF_AGGREGATE = f"""
unnest(:types::text[]) AS kind CROSS JOIN unnest(:ids::uuid[]) AS id CROSS JOIN LATERAL (
  {" UNION ALL ".join(map(_OF_SOURCE.format, SOURCES))}) AS event
"""

# An aggregate's events in order, with what they said.
HISTORY = Statement(f"""
SELECT {SUMMARY}, payload::text AS payload, headers::text AS headers FROM {OF_AGGREGATE} {BECAME}
ORDER BY aggregate_type, event.position
""")  # noqa: S608 - ours

# Who is due for an event, and whether and when they passed it.
SUBSCRIPTIONS_OF = Statement(f"""
SELECT event.position, name, kind, paused_at, (
         SELECT {is_passed("event", "cursor")} FROM {{outbox_cursor_places}} AS cursor WHERE {OF_CURSOR}
       ) IS TRUE AS is_passed,
       pass.recorded_at AS passed_at, coalesce(pass.at_its_beginning, false) AS at_its_beginning
FROM {{outbox_log}} AS event CROSS JOIN {{outbox_subscriptions}} AS subscription
LEFT JOIN LATERAL ({PASS}) AS pass ON true
WHERE event.event_id = :event_id AND {is_due("subscription", "event")}
ORDER BY name
""")  # noqa: S608 - the rules are ours

# Deliveries of events.
DELIVERIES_OF = Statement("""
SELECT event_id, position, handler, order_key, status, attempts, takeovers, alone, on_dead, settled, created_at,
       available_at, updated_at, lease_relay, lease_epoch, error_message
FROM {outbox_deliveries} WHERE event_id = ANY (:event_ids::uuid[]) ORDER BY position, handler
""")

# Receipts of events.
RECEIPTS = Statement("""
SELECT event_id, handler, outcome, created_at FROM {outbox_receipts} WHERE event_id = ANY (:event_ids::uuid[])
ORDER BY event_id, handler
""")

# What a delivery stands behind.
EARLIER_DELIVERY = Statement("""
SELECT position, event_id, status FROM {outbox_deliveries}
WHERE NOT settled AND order_key = :order_key AND handler = :handler AND position < :position
ORDER BY position LIMIT 1
""")

# What failed: dead, or waiting for another attempt; with how many stand behind each, which is counted for those alone
# that are listed.
_HAS_FAILED = "(status = 'dead' OR (status IN ('waiting', 'leased') AND attempts > 0))"
FAILED = Statement(f"""
SELECT event.position, delivery.event_id, event.event_type, event.aggregate_type, event.aggregate_id,
       event.aggregate_key, delivery.handler,
       CASE delivery.status WHEN 'dead' THEN 'dead' ELSE 'retrying' END AS status,
       delivery.attempts, CASE WHEN delivery.status = 'waiting' THEN delivery.available_at END AS next_at,
       delivery.updated_at AS failed_at, delivery.error_message, (
         SELECT count(*) FROM {{outbox_deliveries}} AS behind
         WHERE NOT delivery.settled AND NOT behind.settled AND behind.order_key = delivery.order_key
           AND behind.handler = delivery.handler AND behind.position > delivery.position) AS behind,
       (SELECT count(*) FROM {{outbox_deliveries}} WHERE {UNFINISHED} AND {_HAS_FAILED}) AS total
FROM (
  SELECT * FROM {{outbox_deliveries}} WHERE {UNFINISHED} AND {_HAS_FAILED} ORDER BY position, handler LIMIT :limit
) AS delivery
CROSS JOIN LATERAL (
  SELECT * FROM {{outbox_events}} AS event WHERE event.event_id = delivery.event_id LIMIT 1) AS event
ORDER BY delivery.position, delivery.handler
""")  # noqa: S608 - the rules are ours

# What is held by nobody who lives, and since when.
ORPHANS = Statement(f"""
SELECT count(*) AS leases, extract(epoch FROM {NOW} - min(since))::float8 AS age_seconds
FROM (
  SELECT lease_relay, lease_epoch, updated_at AS since FROM {{outbox_deliveries}} WHERE status = 'leased'
  UNION ALL
  SELECT cursor.lease_relay, cursor.lease_epoch, (
    SELECT expires_at FROM {{outbox_relays}} AS relay WHERE relay.id = cursor.lease_relay)
  FROM {{outbox_cursors}} AS cursor WHERE lease_relay IS NOT NULL
) AS held
WHERE NOT EXISTS (
  SELECT FROM {{outbox_relays}} AS relay
  WHERE relay.id = held.lease_relay AND relay.epoch = held.lease_epoch AND relay.expires_at > {NOW})
""")  # noqa: S608 - the rules are ours

# Dead rows and when they were last cleaned away.
BLOAT = Statement("""
SELECT relname AS table_name, n_live_tup AS live_rows, n_dead_tup AS dead_rows,
       greatest(last_vacuum, last_autovacuum) AS vacuumed_at
FROM pg_stat_all_tables
WHERE relid IN (to_regclass('{outbox_events}'), to_regclass('{outbox_deliveries}'), to_regclass('{outbox_receipts}'))
ORDER BY relname
""")

# The transaction that has kept the server from cleaning these tables for longest, and what would end it. One of
# another database does so only once it has written; one that has written does so without a snapshot as well.
OLDEST_TRANSACTION = Statement("""
SELECT 'process ' || pid || ' (' || coalesce(nullif(application_name, ''), 'unnamed')
         || coalesce(', ' || state, '') || coalesce(', in database ' || nullif(datname, current_database()), '')
         || ')' AS what,
       'SELECT pg_terminate_backend(' || pid || ')' AS ending,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
FROM pg_stat_activity
WHERE pid <> pg_backend_pid()
  AND (backend_xid IS NOT NULL OR (backend_xmin IS NOT NULL AND datname = current_database()))
UNION ALL
SELECT 'prepared transaction ' || quote_literal(gid)
         || coalesce(', in database ' || nullif(database, current_database()), ''),
       'ROLLBACK PREPARED ' || quote_literal(gid),
       extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts
ORDER BY seconds DESC NULLS LAST LIMIT 1
""")

# Who answers: which server, and by which process of its own.
SERVER = Statement("""
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
       pg_backend_pid() AS process_id, pg_is_in_recovery() AS standby,
       current_setting('server_encoding') AS encoding, current_database() AS database
""")

# What sessions of this user begin with, whatever this one has set since; times in milliseconds.
SESSION_DEFAULTS = Statement("""
SELECT name, reset_val AS value FROM pg_settings
WHERE name IN ('default_transaction_read_only', 'default_transaction_isolation', 'statement_timeout', 'lock_timeout',
               'idle_in_transaction_session_timeout', 'transaction_timeout')
UNION ALL SELECT 'role', current_user
""")

# Whose rows policies keep from this user.
HIDDEN = Statement("""
SELECT current_user::text AS role, (SELECT relname FROM pg_class WHERE oid = relation.name::regclass) AS table_name
FROM unnest(ARRAY['{outbox_events}', '{outbox_deliveries}', '{outbox_receipts}', '{outbox_subscriptions}',
                  '{outbox_relays}', '{outbox_cursors}', '{outbox_progress}', '{outbox_arrivals}']) AS relation (name)
WHERE row_security_active(relation.name)
""")

# In which schemas everybody may create, of those in which this user's sessions look for what is named.
OPEN_TO_ALL = Statement("""
SELECT current_user::text AS role, quote_ident(schema.nspname) AS name
FROM pg_settings AS path JOIN pg_namespace AS schema ON schema.nspname = ANY (
  string_to_array(replace(replace(path.reset_val, '"', ''), '$user', current_user::text), ', ')
) OR schema.oid = (SELECT relnamespace FROM pg_class WHERE oid = '{outbox_events}'::regclass)
WHERE path.name = 'search_path' AND EXISTS (
  SELECT FROM aclexplode(schema.nspacl) AS granted WHERE granted.grantee = 0 AND granted.privilege_type = 'CREATE')
ORDER BY schema.nspname
""")

# Which of these rights to these tables, as whoever works in the outbox's schema finds them, this user has.
RIGHTS = Statement("""
SELECT current_user::text AS role, wanted.right_name, wanted.table_name,
       found.relnamespace::regnamespace || '.' || found.relname AS full_name,
       has_table_privilege(found.oid, wanted.right_name) AS has_it
FROM unnest(:rights::text[], :tables::text[]) AS wanted (right_name, table_name)
JOIN pg_class AS found ON found.relname = wanted.table_name
  AND found.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = '{outbox_events}'::regclass)
""")

# Where positions come from, beside the highest that was given.
SEQUENCE = Statement("""
SELECT sequence.name, may_look, CASE WHEN may_look THEN pg_sequence_last_value(sequence.name) END AS given,
       '{outbox_events}' AS table_name, (SELECT max(position) FROM {outbox_log}) AS highest
FROM (SELECT pg_get_serial_sequence('{outbox_events}', 'position')::regclass) AS sequence (name)
CROSS JOIN LATERAL (SELECT has_sequence_privilege(sequence.name, 'SELECT, USAGE') AS may_look) AS right_to
""")

# The columns of a table as somebody's own mapping names it; none where there is no such table.
COLUMNS_OF_TABLE = Statement("""
SELECT attname AS name FROM pg_attribute
WHERE attrelid = to_regclass(:table_name) AND attnum > 0 AND NOT attisdropped
""")
