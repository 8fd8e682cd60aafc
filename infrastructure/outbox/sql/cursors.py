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
    is_of,
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
# The same of what was written under ids that this server has yet to give, as in a log that was moved before anybody
# read it.
_OF_OTHERS = (
    "(SELECT position FROM {} WHERE xid >= pg_snapshot_xmax(pg_current_snapshot()) ORDER BY xid, position)"
)
HIGHEST_OF_OTHERS = Statement(
    "SELECT coalesce(max(position), 0) AS position FROM ("  # noqa: S608 - the names are ours
    + " UNION ALL ".join(map(_OF_OTHERS.format, ("{outbox_events}", "{outbox_arrivals}")))
    + ") AS found"
)
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
# Nor has it passed what was written meanwhile: with them goes what they went with before.
DROP_CURSORS = Statement("""
WITH dropped AS (
  DELETE FROM {outbox_cursors} AS cursor USING {outbox_subscriptions} AS subscription
  WHERE cursor.subscription = subscription.name AND retired_at IS NOT NULL
  RETURNING subscription, shard
)
DELETE FROM {outbox_cursors_past} WHERE (subscription, shard) IN (SELECT subscription, shard FROM dropped)
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

# Take cursors that nobody owns. Those that stood at one place get one new reader there. Of a reader with which they
# have passed nothing there stays no trace: it dates nothing.
_TAKE = """
WITH <lease>,<before> free AS MATERIALIZED (
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
  WHERE last_number > first_number
)
UPDATE {outbox_cursors} AS cursor
SET reader = place.reader, first_number = 0, lease_relay = :relay, lease_epoch = :epoch, rewind_to = NULL
FROM free JOIN place ON free.reader = place.former AND free.rewind_to IS NOT DISTINCT FROM place.rewind_to
WHERE cursor.subscription = free.subscription AND cursor.shard = free.shard
RETURNING cursor.subscription, cursor.shard, cursor.takeovers, place.reader, place.position, place.server,
          place.snapshot::text AS snapshot, place.late_position, place.late_snapshot::text AS late_snapshot,
          (SELECT floor FROM {outbox_servers} WHERE number = place.server) AS floor
"""


def _taken(which: str, before: str = "") -> Statement:
    text = _TAKE
    for word, said in (
        ("<lease>", LEASE),
        ("<which>", which),
        ("<before>", before),
        ("<newest>", _NEWEST.replace("<reader>", "former.reader")),
        ("<now>", NOW),
    ):
        text = text.replace(word, said)
    return Statement(text)


TAKE = _taken("rewind_to IS NULL")

# What stands ahead of the place to which a cursor goes back is read again, in its order, and not done by a delivery
# before what comes earlier; from the moment on in which an operator says so, nobody takes one there. These keep their
# deliveries, which nobody runs: what has killed processes, what is half done, and what an operator has skipped. What is
# settled there is settled no more: what was skipped, or has killed processes and let later ones pass, gets its turn
# back, and is skipped at that; what else is dead and let later ones pass is read again, without the receipt that kept a
# late run from having its effect. What a relay has in its hands is waited for.
_IS_READ_AGAIN = f"""NOT delivery.settled AND (delivery.status = 'leased' OR (NOT {IS_SKIPPED}
    AND (delivery.status = 'dead'
      AND (delivery.error_message = 'kills the process' OR {IS_HALF_DONE})) IS NOT TRUE))"""
_IS_SETTLED_YET = f"""delivery.settled AND delivery.status <> 'done'
    AND (delivery.status = 'dead' OR {IS_SKIPPED}) AND ({IS_HALF_DONE}) IS NOT TRUE"""


def _ahead(which: str) -> str:
    """Return the deliveries ahead of cursors that go back: each is looked at once, and not once for each shard."""
    return f"""
  FROM (
    SELECT delivery.event_id, delivery.handler, delivery.position, delivery.status, delivery.error_message,
           delivery.updated_at, {shard("event")} AS shard
    FROM {{outbox_deliveries}} AS delivery CROSS JOIN LATERAL (
      SELECT * FROM {{outbox_events}} AS event WHERE event.event_id = delivery.event_id LIMIT 1) AS event
    WHERE delivery.handler = ANY (:names::text[]) AND {which} AND delivery.position > (
      SELECT min(rewind_to) FROM {{outbox_cursors}} WHERE subscription = ANY (:names::text[]))
    OFFSET 0) AS delivery
  CROSS JOIN LATERAL (
    SELECT FROM cursor
    WHERE cursor.subscription = delivery.handler AND cursor.shard = delivery.shard
      AND delivery.position > cursor.rewind_to LIMIT 1) AS cursor"""  # noqa: S608 - the rules are ours


# The cursors that are to go back and have no owner: nobody reads ahead for them.
_FREE_TO_GO_BACK = """cursor AS MATERIALIZED (
  SELECT subscription, shard, rewind_to FROM {outbox_cursors}
  WHERE (subscription, shard) IN (SELECT * FROM unnest(:names::text[], :shards::int[])) AND lease_relay IS NULL
    AND rewind_to IS NOT NULL AND EXISTS (SELECT FROM lease)
  FOR UPDATE SKIP LOCKED
)"""

# Drop the deliveries that are read again, so many at a time as a deadline allows. Not one that an operator has changed
# in this moment: whether he has skipped it this statement does not see.
DROP_AHEAD = Statement(
    f"""
WITH {LEASE}, {_FREE_TO_GO_BACK}, ahead AS MATERIALIZED (
  SELECT delivery.event_id, delivery.handler, delivery.updated_at
  {_ahead(f"delivery.status <> 'leased' AND {_IS_READ_AGAIN}")} LIMIT :ahead_max
), dropped AS (
  DELETE FROM {{outbox_deliveries}} AS delivery USING ahead
  WHERE delivery.event_id = ahead.event_id AND delivery.handler = ahead.handler
    AND delivery.status <> 'leased' AND NOT delivery.settled AND delivery.updated_at = ahead.updated_at
)
SELECT count(*) AS found FROM ahead
"""  # noqa: S608 - the fragments are ours
)

# Have what is settled there settled no more, likewise.
UNSETTLE_AHEAD = Statement(
    f"""
WITH {LEASE}, {_FREE_TO_GO_BACK}, ahead AS MATERIALIZED (
  SELECT delivery.event_id, delivery.handler,
         delivery.status = 'skipped' OR delivery.error_message = 'kills the process' AS is_kept
  {_ahead(_IS_SETTLED_YET)} LIMIT :ahead_max
), kept AS (
  UPDATE {{outbox_deliveries}} AS delivery SET status = 'waiting', available_at = {NOW}, updated_at = {NOW} FROM ahead
  WHERE delivery.event_id = ahead.event_id AND delivery.handler = ahead.handler AND delivery.settled AND is_kept
), dropped AS (
  DELETE FROM {{outbox_deliveries}} AS delivery USING ahead
  WHERE delivery.event_id = ahead.event_id AND delivery.handler = ahead.handler AND delivery.settled
    AND is_kept IS NOT TRUE
  RETURNING delivery.event_id, delivery.handler
), allowed_again AS (
  DELETE FROM {{outbox_receipts}} AS receipt USING dropped
  WHERE receipt.event_id = dropped.event_id AND {is_of("dropped.handler")} AND receipt.outcome = 'skipped'
)
SELECT count(*) AS found FROM ahead
"""  # noqa: S608 - the fragments are ours
)

# Take cursors that are to go back, once nothing is left ahead of them that is in the way.
TAKE_BACK = _taken(
    "(subscription, shard, rewind_to) IN (SELECT subscription, shard, rewind_to FROM clear)",
    f""" cursor AS MATERIALIZED (
  SELECT subscription, shard, rewind_to FROM {{outbox_cursors}}
  WHERE (subscription, shard) IN (SELECT * FROM unnest(:names::text[], :shards::int[])) AND rewind_to IS NOT NULL
), clear AS MATERIALIZED (
  SELECT subscription, shard, rewind_to FROM cursor WHERE (subscription, shard) NOT IN (
    SELECT delivery.handler, delivery.shard {_ahead(_IS_READ_AGAIN)}
    UNION SELECT delivery.handler, delivery.shard {_ahead(_IS_SETTLED_YET)})
),""",  # noqa: S608 - the rules are ours
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
  SELECT subscription, shard, reader, first_number, newest.number, <now>
  FROM ours CROSS JOIN LATERAL (
    SELECT number FROM {outbox_progress} AS newest
    WHERE newest.reader = ours.reader ORDER BY number DESC LIMIT 1) AS newest
  WHERE newest.number > first_number
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
