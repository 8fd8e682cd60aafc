"""When a subscription passed an event, as the progress of its readers tells (R2b, S)."""

from __future__ import annotations

from outbox_kernel.infrastructure.outbox.sql.fragments import SHARD, is_passed, shard

# The cursor of `subscription` that `event` is for.
OF_CURSOR = f"cursor.subscription = subscription.name AND cursor.shard = {shard('event')}"


def is_ahead(delivery: str) -> str:
    """Return whether a delivery is for an event that its handler has yet to come to, and is to wait for that.

    What stands at or below the place under an id that this server has yet to give was brought here by somebody, is
    read as what stands ahead, and would wait for as long as it takes to give that id.
    """
    return f"""((
      SELECT {is_passed("event", "cursor")} OR (
        event.position <= cursor.position AND event.xid >= pg_snapshot_xmax(pg_current_snapshot())
        AND cursor.server = (SELECT max(number) FROM {{outbox_servers}}))
      FROM (
        SELECT position, xid, {SHARD} AS shard FROM {{outbox_log}} WHERE position = {delivery}.position OFFSET 0
      ) AS event CROSS JOIN LATERAL (
        SELECT * FROM {{outbox_cursor_places}} AS place
        WHERE place.subscription = {delivery}.handler AND place.shard = event.shard LIMIT 1) AS cursor) IS FALSE)"""  # noqa: S608 - the words are ours


_FLOOR = "(SELECT server.floor FROM {outbox_servers} AS server WHERE server.number = progress.server)"

# The first pass of `event` by `subscription`; no row where it has not been passed.
#
# A cursor has gone with one reader after the other, a stretch of progress with each; one that ended before the event
# was written has not passed it. A stretch that has passed it is walked from the event's position, a step or two.
# They are in order, so that the first that has passed it is the last that is looked at.
# What stood behind the place at which the subscription began was never due for it, and gives no moment. Nor does a
# place without the one before it: those go with age, and nobody knows which of them has passed the event first.
PASS = f"""
SELECT CASE WHEN step.number = first.number OR EXISTS (
  SELECT FROM {{outbox_progress}} AS before
  WHERE before.reader = stretch.reader AND before.number = step.number - 1) THEN step.recorded_at END AS recorded_at,
       step.number = first.number AND NOT EXISTS (
  SELECT FROM {{outbox_cursors_past}} AS cursor
  WHERE {OF_CURSOR} AND cursor.until < stretch.until) AS at_its_beginning
FROM (
  SELECT reader, first_number, 9223372036854775807 AS last_number, 'infinity'::timestamptz AS until
  FROM {{outbox_cursors}} AS cursor WHERE {OF_CURSOR}
  UNION ALL
  SELECT reader, first_number, last_number, until FROM {{outbox_cursors_past}} AS cursor
  WHERE {OF_CURSOR} AND cursor.until >= event.created_at
  ORDER BY until) AS stretch
CROSS JOIN LATERAL (
  SELECT progress.number, progress.position FROM {{outbox_progress}} AS progress
  WHERE progress.reader = stretch.reader AND progress.number >= stretch.first_number
  ORDER BY progress.number LIMIT 1) AS first
CROSS JOIN LATERAL (
  SELECT progress.number, progress.position, progress.snapshot, progress.late_position, progress.late_snapshot,
         {_FLOOR} AS floor
  FROM {{outbox_progress}} AS progress
  WHERE progress.reader = stretch.reader AND progress.number <= stretch.last_number
  ORDER BY progress.number DESC LIMIT 1) AS last
CROSS JOIN LATERAL (
  SELECT progress.number, progress.recorded_at FROM {{outbox_progress}} AS progress
  WHERE progress.reader = stretch.reader AND progress.number BETWEEN first.number AND last.number
    AND progress.position BETWEEN greatest(event.position, first.position) AND last.position
    AND {is_passed("event", "progress", _FLOOR)}
  ORDER BY progress.position, progress.number LIMIT 1) AS step
WHERE {is_passed("event", "last")}
ORDER BY stretch.until LIMIT 1
"""  # noqa: S608 - the words are ours
