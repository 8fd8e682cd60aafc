"""Inspecting: what an operator asks, none of it by reading the whole table of events (O1)."""

from __future__ import annotations

# Who relays. 1 now.
RELAYS = """
SELECT id, epoch, host, process_id, started_at, renewed_at, expires_at, code_version, abilities::text, pauses::text,
       takes_events, patterns::text,
       expires_at > coalesce($1::timestamptz, clock_timestamp()) AS live,
       extract(epoch FROM expires_at - coalesce($1::timestamptz, clock_timestamp()))::float8 AS lease_seconds_left
FROM {outbox_relays} ORDER BY started_at, id
"""

# How many events are where. Open and dead ones have deliveries, which are few; the delivered ones are counted
# while they are few, and estimated from the server's statistics where that would read for long.
BACKLOG = """
WITH undelivered AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE status = 'pending') AS pending, count(*) FILTER (WHERE status = 'leased') AS leased
  FROM {outbox_events} WHERE status IN ('pending', 'leased')
), undone AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE unsettled) AS open, count(*) FILTER (WHERE NOT unsettled) AS dead
  FROM (
    SELECT bool_or(status IN ('waiting', 'leased')) AS unsettled FROM {outbox_deliveries}
    WHERE status IN ('waiting', 'leased', 'dead') GROUP BY event_id
  ) AS event
)
SELECT pending, leased, open, dead,
       CASE WHEN pg_relation_size('{outbox_events}') < 64 * 1024 * 1024
            THEN (SELECT count(*) FROM {outbox_events} WHERE status = 'delivered')
            ELSE greatest(0, pg_stat_get_live_tuples('{outbox_events}'::regclass) - pending - leased - open - dead)
       END AS delivered,
       pg_relation_size('{outbox_events}') >= 64 * 1024 * 1024 AS delivered_is_estimated
FROM undelivered, undone
"""

# The oldest event that somebody has yet to handle, dead ones left out, and those whose moment is yet to come. 1 now.
OLDEST = """
SELECT position, event_id, event_type, status, created_at,
       extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - greatest(created_at, not_before))::float8
         AS age_seconds
FROM {outbox_events}
WHERE event_id IN (
  (SELECT event_id FROM {outbox_events} WHERE status IN ('pending', 'leased') ORDER BY position LIMIT 1),
  (SELECT event_id FROM {outbox_deliveries}
   WHERE status IN ('waiting', 'leased')
     AND (attempts > 0 OR available_at <= coalesce($1::timestamptz, clock_timestamp())) ORDER BY position LIMIT 1))
ORDER BY position LIMIT 1
"""

# Subscriptions with their deliveries; deliveries of a name that never subscribed show as well.
SUBSCRIPTIONS_AND_DELIVERIES = """
SELECT name, kind, patterns, ordered, since, paused_at, retired_at,
       coalesce(waiting, 0) AS waiting, coalesce(leased, 0) AS leased, coalesce(dead, 0) AS dead
FROM {outbox_subscriptions} AS subscription FULL JOIN (
  SELECT handler AS name, count(*) FILTER (WHERE status = 'waiting') AS waiting,
         count(*) FILTER (WHERE status = 'leased') AS leased, count(*) FILTER (WHERE status = 'dead') AS dead
  FROM {outbox_deliveries} WHERE status IN ('waiting', 'leased', 'dead') GROUP BY handler
) AS delivery USING (name)
ORDER BY name
"""

# What waits, by what a relay needs to know to run it.
WAITING_KINDS = """
SELECT delivery.handler, event.event_type, event.event_version, count(*) AS deliveries,
       min(event.position) AS position, min(delivery.created_at) AS since
FROM {outbox_deliveries} AS delivery JOIN {outbox_events} AS event USING (event_id)
WHERE delivery.status = 'waiting' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""

# The aggregate types there are, hopping from one to the next.
AGGREGATE_TYPES = """
WITH RECURSIVE kind AS (
  (SELECT aggregate_type FROM {outbox_events} WHERE aggregate_type IS NOT NULL ORDER BY aggregate_type LIMIT 1)
  UNION ALL
  SELECT (SELECT event.aggregate_type FROM {outbox_events} AS event
          WHERE event.aggregate_type > kind.aggregate_type ORDER BY event.aggregate_type LIMIT 1)
  FROM kind WHERE kind.aggregate_type IS NOT NULL
)
SELECT aggregate_type FROM kind WHERE aggregate_type IS NOT NULL
"""

# Events, the newest first. 1 event types as a pattern, 2 aggregate types, 3 aggregate ids, 4 status, 5 since
# (each null: any), 6 events at most.
EVENTS = """
SELECT position, event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_key, aggregate_version,
       status, retry_count, occurred_at, created_at, not_before, processed_at, error_message
FROM {outbox_events}
WHERE ($1::text IS NULL OR event_type ~ $1)
  AND ($2::text[] IS NULL OR aggregate_type = ANY ($2))
  AND ($3::uuid[] IS NULL OR aggregate_id = ANY ($3))
  AND ($4::text IS NULL OR status = $4)
  AND ($5::timestamptz IS NULL OR created_at >= $5)
ORDER BY position DESC LIMIT $6
"""

# One event. 1 event id.
_EVENT = """
SELECT position, event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_key, aggregate_version,
       status, retry_count, takeovers, occurred_at, created_at, not_before, available_at, updated_at, processed_at,
       error_message, payload::text, headers::text, lease_relay, lease_epoch
FROM {outbox_events} WHERE """
EVENT = f"{_EVENT}event_id = $1\n"
EVENT_AT = f"{_EVENT}position = $1\n"

# An aggregate's events in order, with what they said. 1 aggregate types, 2 its id, in every reading.
HISTORY = """
SELECT position, event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_key, aggregate_version,
       status, retry_count, occurred_at, processed_at, error_message, payload::text, headers::text
FROM {outbox_events} WHERE aggregate_type = ANY ($1) AND aggregate_id = ANY ($2)
ORDER BY aggregate_type, aggregate_version NULLS LAST, position
"""

# Deliveries of events. 1 event ids.
DELIVERIES_OF = """
SELECT event_id, position, handler, order_key, status, attempts, takeovers, alone, on_dead, settled, created_at,
       available_at, updated_at, lease_relay, lease_epoch, error_message
FROM {outbox_deliveries} WHERE event_id = ANY ($1) ORDER BY position, handler
"""

# Receipts of events. 1 event ids.
RECEIPTS = """
SELECT event_id, handler, outcome, created_at FROM {outbox_receipts} WHERE event_id = ANY ($1)
ORDER BY event_id, handler
"""

# What an event that is not claimed stands behind. 1 aggregate type, 2 aggregate id, 3 position.
EARLIER_EVENT = """
SELECT position, event_id, status FROM {outbox_events}
WHERE status IN ('pending', 'leased') AND aggregate_type = $1 AND aggregate_id = $2 AND position < $3
  AND not_before IS NULL
ORDER BY position LIMIT 1
"""

# What a delivery stands behind. 1 order key, 2 handler, 3 position.
EARLIER_DELIVERY = """
SELECT position, event_id, status FROM {outbox_deliveries}
WHERE NOT settled AND order_key = $1 AND handler = $2 AND position < $3 ORDER BY position LIMIT 1
"""

# What failed: dead, or waiting for another attempt; with how many stand behind each. 1 rows at most.
FAILED = """
SELECT event.position, delivery.event_id, event.event_type, event.aggregate_type, event.aggregate_id,
       event.aggregate_key, delivery.handler,
       CASE delivery.status WHEN 'dead' THEN 'dead' ELSE 'retrying' END AS status,
       delivery.attempts, CASE WHEN delivery.status = 'waiting' THEN delivery.available_at END AS next_at,
       delivery.updated_at AS failed_at, delivery.error_message, (
         SELECT count(*) FROM {outbox_deliveries} AS behind
         WHERE NOT delivery.settled AND NOT behind.settled AND behind.order_key = delivery.order_key
           AND behind.handler = delivery.handler AND behind.position > delivery.position) AS behind,
       count(*) OVER () AS total
FROM {outbox_deliveries} AS delivery JOIN {outbox_events} AS event USING (event_id)
WHERE delivery.status = 'dead' OR (delivery.status IN ('waiting', 'leased') AND delivery.attempts > 0)
ORDER BY event.position, delivery.handler LIMIT $1
"""

# What is leased to nobody who lives, and since when. 1 now.
ORPHANS = """
SELECT count(*) AS leases, min(updated_at) AS since,
       extract(epoch FROM coalesce($1::timestamptz, clock_timestamp()) - min(updated_at))::float8 AS age_seconds
FROM (
  SELECT lease_relay, lease_epoch, updated_at FROM {outbox_events} WHERE status IN ('pending', 'leased')
    AND lease_relay IS NOT NULL
  UNION ALL
  SELECT lease_relay, lease_epoch, updated_at FROM {outbox_deliveries} WHERE status = 'leased'
) AS held
WHERE NOT EXISTS (
  SELECT FROM {outbox_relays} AS relay
  WHERE relay.id = held.lease_relay AND relay.epoch = held.lease_epoch
    AND relay.expires_at > coalesce($1::timestamptz, clock_timestamp()))
"""

# Dead rows and when they were last cleaned away.
BLOAT = """
SELECT relname AS table_name, n_live_tup AS live_rows, n_dead_tup AS dead_rows,
       greatest(last_vacuum, last_autovacuum) AS vacuumed_at
FROM pg_stat_all_tables
WHERE relid IN (to_regclass('{outbox_events}'), to_regclass('{outbox_deliveries}'), to_regclass('{outbox_receipts}'))
ORDER BY relname
"""

# The transaction that has kept the server from cleaning these tables for longest, and what would end it. One of
# another database does so only once it has written; one that has written does so without a snapshot as well.
OLDEST_TRANSACTION = """
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
"""

# Who answers: which server, and by which process of its own.
SERVER = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,
       pg_backend_pid() AS process_id, pg_is_in_recovery() AS standby,
       current_setting('server_encoding') AS encoding, current_database() AS database
"""

# The columns of a table as somebody's own mapping names it; none where there is no such table. 1 its name.
COLUMNS_OF_TABLE = """
SELECT attname AS name FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
"""
