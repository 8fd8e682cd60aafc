"""What a rule of SQL says, written once: who is due for an event, in which shard it is, and who has passed it.

Each takes the names by which the statement calls its rows: an event is one of `outbox_events` or of
`outbox_log`, a place has `position`, `snapshot`, `late_position`, `late_snapshot` and `floor`.
"""

from __future__ import annotations

from outbox_kernel.kernel.errors import SecondCommit

SHARDS = 32

# Which shard an event is of. No hash of the server's: a new version may change it, and with it what was passed already.
SHARD = f"get_byte(uuid_send(coalesce(aggregate_id, event_id)), 15) % {SHARDS}"

# By the server's clock, unless a test gives a time.
NOW = "coalesce(:now::timestamptz, clock_timestamp())"

# The lock of whoever writes deliveries that an operator asks for; a purge has it in common with nobody who does. By
# the table's number: not everybody names it with its schema.
OPERATORS_TURN = "hashtextextended('outbox-kernel operate ' || '{outbox_events}'::regclass::oid::text, 0)"

# Whether the relay that asks still holds its lease; the row is locked, so that nobody ends it while it writes.
LEASE = (
    "lease AS MATERIALIZED (SELECT FROM {outbox_relays} "
    f"WHERE id = :relay AND epoch = :epoch AND expires_at > {NOW} FOR SHARE)"
)

# The moments that Python has. One before or after would fail all that is read with it.
_FIRST, _LAST = "'0001-01-01 00:00:00+00'", "'9999-12-31 23:59:59.999999+00'"
_WITHIN = f"event.{{0}} BETWEEN {_FIRST} AND {_LAST}"


def shown(moment: str) -> str:
    """Return a moment as those are told it who look: one that Python has not, as the nearest that it has."""
    return f"greatest({_FIRST}, least({_LAST}, {moment}))"


# What cannot be read is without `occurred_at` for a relay. It keeps a `not_before`, by which it is outside its
# aggregate's order (K13). The other two come as the eight bytes that the server keeps: the driver takes a tenth of all
# that an event costs to make moments of them, for which few ask.
MOMENTS = f"""
  timestamptz_send(
    CASE WHEN {_WITHIN.format("occurred_at")}
          AND (event.not_before IS NULL OR {_WITHIN.format("not_before")})
          AND jsonb_typeof(payload) = 'object' AND jsonb_typeof(headers) = 'object' THEN occurred_at END
  ) AS occurred_at,
  timestamptz_send(event.created_at) AS created_at,
  CASE WHEN not_before IS NOT NULL THEN {shown("not_before")} END AS not_before
"""

# When an event's delivery may begin that an operator asks for.
FROM_NOW_ON = f"least({_LAST}, greatest(not_before, {NOW}))"

# How large an event is, about. A payload that is stored compressed counts as many times larger, as lists of rows that
# are all alike are: to measure it, each would have to be read.
SIZE = "least(pg_column_size(payload), 100000000) * CASE WHEN pg_column_compression(payload) IS NULL THEN 1 ELSE 16 END"

# Each index of an aggregate's events has a part of them: what is written here, and what queues have brought.
SOURCES = ("source IS NULL", "source IS NOT NULL")

# What a relay reads of an event.
EVENT = (
    "position, event_id, event_type, event_version, aggregate_type, aggregate_id, aggregate_version, "
    f"payload::text AS payload, headers::text AS headers, {MOMENTS}, aggregate_key, source, xid"
)
# The last position in the log.
HIGHEST = "coalesce((SELECT max(position) FROM {outbox_log}), 0)"

NO_EVENT = ", ".join(["NULL"] * 15)


def like(pattern: str) -> str:
    """Return the expression that makes of a pattern of event types what LIKE takes; as `kernel.matching` has it."""
    # No other sign that LIKE or `kernel.matching` knows can stand in one: it is refused where it is defined.
    return rf"replace(replace({pattern}, '_', '\_'), '*', '%')"


def shard(event: str) -> str:
    """Return in which shard the event of that name is."""
    return SHARD.replace("aggregate_id", f"{event}.aggregate_id").replace("event_id", f"{event}.event_id")


def is_due(subscription: str, event: str) -> str:
    """Return whether a subscription is for an event, wherever in the log it began."""
    return (
        f"({subscription}.retired_at IS NULL AND {subscription}.source IS NOT DISTINCT FROM {event}.source "
        f"AND EXISTS (SELECT FROM unnest({subscription}.patterns) AS pattern "
        f"WHERE {event}.event_type LIKE {like('pattern')}))"
    )


def is_passed(event: str, place: str, floor: str | None = None) -> str:
    """Return whether an event is behind a place; null, which is no, where there is none."""
    below = floor or f"{place}.floor"
    return (
        f"({event}.position <= {place}.position "
        f"AND ({event}.position <= {below} OR pg_visible_in_snapshot({event}.xid, {place}.snapshot) "
        f"OR coalesce({event}.position <= {place}.late_position "
        f"AND pg_visible_in_snapshot({event}.xid, {place}.late_snapshot), false)))"
    )


def is_of(handler: str) -> str:
    """Return whether a `receipt` is of that handler, under its name or under the one that it had before."""
    former = f"SELECT renamed_from FROM {{outbox_subscriptions}} WHERE name = {handler}"  # noqa: S608 - the rule is ours
    return f"receipt.handler IN ({handler}, ({former}))"


# What has yet to come to an end, by the index that has nothing else.
UNFINISHED = "status IN ('waiting', 'leased', 'dead')"

# Each subscription that is due for something, with its patterns as LIKE takes them and the highest place at which one
# of its cursors stands; the one that is furthest behind comes first. Cursors that go together are one row.
_BEHIND = f"""
  SELECT source, place.position, ARRAY(SELECT {like("pattern")} FROM unnest(patterns) AS pattern) AS patterns
  FROM {{outbox_subscriptions}} AS subscription CROSS JOIN LATERAL (
    SELECT max(least(newest.position, cursor.rewind_to)) AS position
    FROM (SELECT DISTINCT reader, rewind_to FROM {{outbox_cursors}} WHERE subscription = name) AS cursor
    CROSS JOIN LATERAL (
      SELECT progress.position FROM {{outbox_progress}} AS progress
      WHERE progress.reader = cursor.reader ORDER BY progress.number DESC LIMIT 1) AS newest) AS place
  WHERE subscription.retired_at IS NULL ORDER BY place.position
"""  # noqa: S608 - the rule is ours

# Whether an `event` is pending for sure, since one who is due stands wholly before it. Of a million that wait for
# somebody who is far behind, this tells for a thirtieth of what it costs to ask for each. In the middle of a query it
# is worked out once who stands where.
IS_FAR_AHEAD = f"""EXISTS (
  WITH behind AS MATERIALIZED ({_BEHIND})
  SELECT FROM behind WHERE event.position > behind.position AND behind.source IS NOT DISTINCT FROM event.source
    AND event.event_type LIKE ANY (behind.patterns))"""  # noqa: S608 - the rule is ours

# What is left of a `delivery` that would have committed a second effect, as its error says: the first one is there.
# Another run would meet the receipt of that, and be done with the other half missing.
# Not by EXISTS, which the server may answer by a hash of all receipts, whatever is said of scans.
IS_HALF_DONE = f"""(delivery.error_message LIKE '{SecondCommit.__name__}: %' AND (
    SELECT first.outcome = 'done' FROM {{outbox_receipts}} AS first
    WHERE first.event_id = delivery.event_id AND first.handler = delivery.handler) IS TRUE)"""  # noqa: S608 - the name is ours

# What an operator lets pass without an effect: its `delivery` is never run.
IS_SKIPPED = """(
    SELECT receipt.outcome = 'skipped' FROM {outbox_receipts} AS receipt
    WHERE receipt.event_id = delivery.event_id AND receipt.handler = delivery.handler) IS TRUE"""
