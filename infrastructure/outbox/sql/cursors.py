"""Who reads the log for whom: cursors are made, taken, given over, and change the reader that they go with (R1, R3)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import (
    HIGHEST as LAST,
)
from outbox_kernel.infrastructure.outbox.sql.fragments import (
    IS_HALF_DONE,
    IS_SKIPPED,
    LEASE,
    NOW,
    SHARDS,
    shard,
)
from outbox_kernel.infrastructure.outbox.sql.named import Statement

_NEWEST = (
    "SELECT * FROM {outbox_progress} AS newest WHERE newest.reader = <reader> ORDER BY number DESC LIMIT 1"
)

# The server whose transaction ids count now, and which one this is.
SERVER = Statement("""
SELECT here.system_identifier::text AS here, known.number, known.identifier, known.floor
FROM pg_control_system() AS here
LEFT JOIN (SELECT * FROM {outbox_servers} ORDER BY number DESC LIMIT 1) AS known ON true
""")

# The highest position, and who may yet fill a gap below it. In this order: who has ended in between has filled his.
HIGHEST = Statement(f"SELECT {LAST} AS position")
WRITERS = Statement("""
SELECT coalesce(array_agg(virtualtransaction), ARRAY[]::text[]) AS found FROM pg_locks
WHERE relation = '{outbox_events}'::regclass AND mode = 'RowExclusiveLock' AND pid IS DISTINCT FROM pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
""")
LOCK_SERVERS = Statement("LOCK TABLE {outbox_servers} IN SHARE ROW EXCLUSIVE MODE")
ADD_SERVER = Statement("""
INSERT INTO {outbox_servers} (identifier, floor)
SELECT here.system_identifier::text, :floor FROM pg_control_system() AS here
WHERE here.system_identifier::text IS DISTINCT FROM (
  SELECT identifier FROM {outbox_servers} ORDER BY number DESC LIMIT 1)
""")

# Give the cursors that are missing to subscriptions: what commits from this statement on is theirs, or all of the log.
# Who is the first to read what is written here gets all of it: what was committed before would be delivered to nobody.
# What queues have brought was for their handlers of the time.
ADD_CURSORS = Statement(
    f"""
WITH untouched AS MATERIALIZED (
  SELECT NOT EXISTS (
    SELECT FROM {{outbox_subscriptions}} WHERE source IS NULL AND (
      name <> ALL (:names::text[]) OR revision > 1
      OR name IN (SELECT subscription FROM {{outbox_cursors}}))) AS by_now
), fresh AS MATERIALIZED (
  SELECT name, from_beginning, source, gen_random_uuid() AS reader
  FROM unnest(:names::text[], :from_beginning::bool[]) AS carried (name, from_beginning)
  JOIN {{outbox_subscriptions}} USING (name)
  WHERE retired_at IS NULL AND NOT EXISTS (SELECT FROM {{outbox_cursors}} WHERE subscription = name)
), placed AS (
  INSERT INTO {{outbox_progress}} (reader, number, position, server, snapshot, recorded_at)
  SELECT reader, 0, CASE WHEN from_beginning OR (source IS NULL AND (SELECT by_now FROM untouched)) THEN 0
                    ELSE {LAST} END,
         :server, pg_current_snapshot(), {NOW}
  FROM fresh
)
INSERT INTO {{outbox_cursors}} (subscription, shard, reader)
SELECT name, shard, reader FROM fresh, generate_series(0, {SHARDS - 1}) AS shard
ON CONFLICT DO NOTHING
"""  # noqa: S608 - the fragments are ours
)

# What a subscription has not passed when it is retired it never gets: it has no cursors, and new ones if it comes back.
DROP_CURSORS = Statement("""
DELETE FROM {outbox_cursors} AS cursor USING {outbox_subscriptions} AS subscription
WHERE cursor.subscription = subscription.name AND retired_at IS NOT NULL
""")

# Let the cursors of a former name be those of the new one that has none yet, whoever owns them.
RENAME_CURSORS = Statement("""
WITH renamed AS MATERIALIZED (
  SELECT name, former FROM unnest(:names::text[], :former::text[]) AS renamed (name, former)
  WHERE NOT EXISTS (SELECT FROM {outbox_cursors} WHERE subscription = name)
), past AS (
  UPDATE {outbox_cursors_past} AS past SET subscription = name FROM renamed WHERE past.subscription = former
)
UPDATE {outbox_cursors} AS cursor SET subscription = name FROM renamed WHERE cursor.subscription = former
""")

# Everything by which ownership is decided: the live relays with what they carry, and the cursors of that.
LIVE_RELAYS = Statement(
    f"SELECT id, abilities::text FROM {{outbox_relays}} WHERE takes_events AND expires_at > {NOW}"  # noqa: S608 - ours
)
CURSORS = Statement("""
SELECT subscription, shard, lease_relay, rewind_to IS NOT NULL AS is_to_go_back, bounded
FROM {outbox_cursors} JOIN {outbox_subscriptions} ON name = subscription
WHERE name = ANY (:names::text[]) AND retired_at IS NULL
""")

# Take cursors that nobody owns. Those that stood at one place get one new reader there.
_TAKE = """
WITH <lease>, free AS MATERIALIZED (
  SELECT subscription, shard, reader, first_number, rewind_to, takeovers FROM {outbox_cursors} AS cursor
  WHERE (subscription, shard) IN (SELECT * FROM unnest(:names::text[], :shards::int[])) AND lease_relay IS NULL
    AND EXISTS (SELECT FROM lease) AND <which>
  FOR UPDATE SKIP LOCKED
), place AS MATERIALIZED (
  SELECT former.reader AS former, former.rewind_to, gen_random_uuid() AS reader, newest.number AS last_number,
         least(newest.position, former.rewind_to) AS position, newest.server, newest.snapshot, newest.late_position,
         newest.late_snapshot
  FROM (SELECT DISTINCT reader, rewind_to FROM free) AS former
  CROSS JOIN LATERAL (<newest>) AS newest
), started AS (
  INSERT INTO {outbox_progress} (
    reader, number, position, server, snapshot, late_position, late_snapshot, recorded_at)
  SELECT reader, 0, position, server, snapshot, late_position, late_snapshot, <now> FROM place
), past AS (
  INSERT INTO {outbox_cursors_past} (subscription, shard, reader, first_number, last_number, until)
  SELECT subscription, shard, free.reader, first_number, last_number, <now>
  FROM free JOIN place ON free.reader = place.former AND free.rewind_to IS NOT DISTINCT FROM place.rewind_to
)<and>
UPDATE {outbox_cursors} AS cursor
SET reader = place.reader, first_number = 0, lease_relay = :relay, lease_epoch = :epoch, rewind_to = NULL
FROM free JOIN place ON free.reader = place.former AND free.rewind_to IS NOT DISTINCT FROM place.rewind_to
WHERE cursor.subscription = free.subscription AND cursor.shard = free.shard
RETURNING cursor.subscription, cursor.shard, cursor.takeovers, place.reader, place.position, place.server,
          place.snapshot::text AS snapshot, place.late_position, place.late_snapshot::text AS late_snapshot,
          (SELECT floor FROM {outbox_servers} WHERE number = place.server) AS floor
"""


def _taken(which: str, and_: str = "") -> Statement:
    text = _TAKE
    for word, said in (
        ("<lease>", LEASE),
        ("<which>", which),
        ("<and>", and_),
        ("<newest>", _NEWEST.replace("<reader>", "former.reader")),
        ("<now>", NOW),
    ):
        text = text.replace(word, said)
    return Statement(text)


TAKE = _taken("rewind_to IS NULL")

# What stands ahead of the place to which a cursor goes back is read again, in its order, and not done by a delivery
# before what comes earlier. These keep their deliveries, which nobody runs: what has killed processes, what is half
# done, and what an operator has skipped.
_IS_AHEAD = f"""event.event_id = delivery.event_id
    AND delivery.position > cursor.rewind_to AND {shard("event")} = cursor.shard"""
_STAYS_DEAD = f"delivery.takeovers >= 2 OR {IS_HALF_DONE}"
_IS_READ_AGAIN = f"""NOT delivery.settled AND NOT {IS_SKIPPED}
    AND (delivery.status = 'dead' AND ({_STAYS_DEAD})) IS NOT TRUE"""

# Drop the deliveries that are read again, once a cursor that is to go back has no owner: nobody reads ahead for it. Of
# a turn all of them, or none while a relay has one in its hands: it may come to wait again, and to its turn, with
# nothing before it. So many turns at a time as a deadline allows.
DROP_AHEAD = Statement(
    f"""
WITH {LEASE}, cursor AS MATERIALIZED (
  SELECT subscription, shard, rewind_to FROM {{outbox_cursors}}
  WHERE (subscription, shard) IN (SELECT * FROM unnest(:names::text[], :shards::int[])) AND lease_relay IS NULL
    AND rewind_to IS NOT NULL AND EXISTS (SELECT FROM lease)
  FOR UPDATE SKIP LOCKED
), ahead AS MATERIALIZED (
  SELECT delivery.event_id, delivery.handler, delivery.order_key
  FROM {{outbox_deliveries}} AS delivery, {{outbox_events}} AS event, cursor
  WHERE delivery.handler = ANY (ARRAY(SELECT subscription FROM cursor)) AND delivery.handler = cursor.subscription
    AND {_IS_READ_AGAIN} AND {_IS_AHEAD}
), turn AS MATERIALIZED (
  SELECT handler, order_key, count(*) AS deliveries FROM ahead GROUP BY handler, order_key LIMIT :turns_max
), held AS MATERIALIZED (
  SELECT delivery.event_id, delivery.handler, delivery.order_key, turn.deliveries,
         delivery.status = 'leased' AS is_in_hand
  FROM turn JOIN ahead USING (handler, order_key)
  JOIN {{outbox_deliveries}} AS delivery ON delivery.event_id = ahead.event_id AND delivery.handler = ahead.handler
  WHERE NOT delivery.settled
  FOR UPDATE OF delivery SKIP LOCKED
), whole AS (
  SELECT handler, order_key FROM held GROUP BY handler, order_key, deliveries
  HAVING count(*) = deliveries AND NOT bool_or(is_in_hand)
)
DELETE FROM {{outbox_deliveries}} AS delivery USING held JOIN whole USING (handler, order_key)
WHERE delivery.event_id = held.event_id AND delivery.handler = held.handler
RETURNING delivery.handler, delivery.order_key
"""  # noqa: S608 - the fragments are ours
)

# Take cursors that are to go back, ahead of which nothing is left that is read again. What was skipped there gets its
# delivery back in the same moment, so that whoever reads it leaves it to that. What is dead there and let later ones
# pass is read again: with it goes the receipt that kept a late run from having its effect.
TAKE_BACK = _taken(
    f"""rewind_to IS NOT NULL AND NOT EXISTS (
      SELECT FROM {{outbox_deliveries}} AS delivery, {{outbox_events}} AS event
      WHERE delivery.handler = cursor.subscription AND {_IS_READ_AGAIN} AND {_IS_AHEAD})""",
    f""", skipped_again AS (
  UPDATE {{outbox_deliveries}} AS delivery SET status = 'waiting', updated_at = {NOW}
  FROM {{outbox_events}} AS event, free AS cursor
  WHERE delivery.handler = cursor.subscription AND delivery.status = 'skipped' AND {IS_SKIPPED} AND {_IS_AHEAD}
), tried_again AS (
  DELETE FROM {{outbox_deliveries}} AS delivery USING {{outbox_events}} AS event, free AS cursor
  WHERE delivery.handler = cursor.subscription AND delivery.status = 'dead' AND delivery.settled
    AND ({_STAYS_DEAD}) IS NOT TRUE AND {_IS_AHEAD}
  RETURNING delivery.event_id, delivery.handler
), allowed_again AS (
  DELETE FROM {{outbox_receipts}} AS receipt USING tried_again
  WHERE receipt.event_id = tried_again.event_id AND receipt.handler = tried_again.handler
    AND receipt.outcome = 'skipped'
)""",  # noqa: S608 - the rules are ours
)

# Whether a cursor has moved since it went with its reader: what stood behind it then has killed nobody.
_HAS_MOVED = (
    f"(SELECT number FROM ({_NEWEST.replace('<reader>', 'cursor.reader')}) AS newest) > cursor.first_number"  # noqa: S608
)
_TAKEOVERS_LEFT = f"CASE WHEN {_HAS_MOVED} THEN 0 ELSE cursor.takeovers END"

# Let cursors of a reader of ours go with another of ours from its progress `number` on; or, if they are given over, let
# them stand at a place of their own until another relay takes them. It returns nothing where the lease does not hold.
# By whichever name: they may have another now, or be gone.
_REATTACH = """
), past AS (
  INSERT INTO {outbox_cursors_past} (subscription, shard, reader, first_number, last_number, until)
  SELECT subscription, shard, reader, first_number, (
           SELECT number FROM {outbox_progress} AS newest
           WHERE newest.reader = ours.reader ORDER BY number DESC LIMIT 1), <now>
  FROM ours
), moved AS (
  UPDATE {outbox_cursors} AS cursor
  SET reader = :to, first_number = :number, takeovers = <takeovers>, lease_relay = <owner>, lease_epoch = <epoch>
  FROM ours WHERE cursor.reader = ours.reader AND cursor.shard = ours.shard
)
SELECT true AS held FROM lease
"""
_OURS = """
ours AS MATERIALIZED (
  SELECT subscription, shard, reader, first_number FROM {outbox_cursors}
  WHERE reader = :reader AND shard = ANY (:shards::int[])
    AND lease_relay = :relay AND lease_epoch = :epoch AND EXISTS (SELECT FROM lease)
  FOR UPDATE
"""
_PLACED = """
), placed AS (
  INSERT INTO {outbox_progress} (
    reader, number, position, server, snapshot, late_position, late_snapshot, recorded_at)
  SELECT :to, :number, :position, :server, :snapshot::text::pg_snapshot, :late_position::bigint,
         :late_snapshot::text::pg_snapshot, <now>
  FROM lease
"""


def _reattached(*, placed: bool, kept: bool) -> Statement:
    text = f"WITH {LEASE}, {_OURS} {_PLACED if placed else ''} {_REATTACH}"
    for word, said in (
        ("<now>", NOW),
        ("<takeovers>", _TAKEOVERS_LEFT),
        ("<owner>", ":relay" if kept else "NULL"),
        ("<epoch>", ":epoch" if kept else "NULL"),
    ):
        text = text.replace(word, said)
    return Statement(text)


JOIN = _reattached(placed=False, kept=True)
GIVE = _reattached(placed=True, kept=False)

# Own no cursor any more: of epochs that are over, or at the end. Their places are their readers' newest.
GIVE_BACK_CURSORS = Statement(
    f"""
UPDATE {{outbox_cursors}} AS cursor
SET lease_relay = NULL, lease_epoch = NULL, takeovers = {_TAKEOVERS_LEFT}
WHERE lease_relay = :relay AND lease_epoch <= :epoch
"""  # noqa: S608 - the fragments are ours
)

# Free the cursors of relays that have vanished. A relay that has moved a cursor was not killed by what stood behind it.
# Only from the lease that was seen to be dead: while this waits for a row, another sweep may free it, and a relay take
# it whose own row is younger than what this statement sees.
TAKE_OVER_CURSORS = Statement(
    f"""
WITH gone AS MATERIALIZED (
  SELECT subscription, shard, lease_relay, lease_epoch FROM {{outbox_cursors}} AS cursor
  WHERE lease_relay IS NOT NULL AND NOT EXISTS (
    SELECT FROM {{outbox_relays}} AS relay WHERE relay.id = cursor.lease_relay AND relay.epoch = cursor.lease_epoch)
)
UPDATE {{outbox_cursors}} AS cursor
SET lease_relay = NULL, lease_epoch = NULL,
    takeovers = CASE WHEN {_HAS_MOVED} THEN 1 ELSE takeovers + 1 END
FROM gone
WHERE cursor.subscription = gone.subscription AND cursor.shard = gone.shard
  AND cursor.lease_relay = gone.lease_relay AND cursor.lease_epoch = gone.lease_epoch
RETURNING cursor.subscription, cursor.shard
"""  # noqa: S608 - the fragments are ours
)
