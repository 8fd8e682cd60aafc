"""The status of an event as a type of its own, whose words no INSERT has to plan a check of.

Frozen, and without a schema's name, as the first one.
"""

from alembic import op

revision = "outbox_0004"
down_revision = "outbox_0003"
branch_labels = None
depends_on = None

STATES = "('pending', 'leased', 'open', 'delivered', 'dead')"


def upgrade() -> None:
    _view(delivered="false", delivered_at="processed_at")
    op.execute("ALTER TABLE outbox_events DROP CONSTRAINT IF EXISTS outbox_events_status_check")
    # Some have it: for a while the first migration made it.
    op.execute("""
        DO $$ BEGIN
            IF to_regtype('outbox_event_status') IS NULL THEN
                CREATE DOMAIN outbox_event_status AS text;
            END IF;
        END $$
    """)
    op.execute("COMMENT ON DOMAIN outbox_event_status IS 'How far an event is delivered.'")
    op.execute("ALTER DOMAIN outbox_event_status DROP CONSTRAINT IF EXISTS outbox_events_status_check")
    op.execute("ALTER TABLE outbox_events ALTER COLUMN status TYPE outbox_event_status")
    # Now, since a change to a type with a check would write the table anew; this only reads it.
    op.execute(
        "ALTER DOMAIN outbox_event_status "
        f"ADD CONSTRAINT outbox_events_status_check CHECK (VALUE IN {STATES})"
    )
    _view()


def downgrade() -> None:
    _view(delivered="false", delivered_at="processed_at")
    op.execute("ALTER TABLE outbox_events ALTER COLUMN status TYPE text")
    op.execute("DROP DOMAIN outbox_event_status")
    op.execute(
        f"ALTER TABLE outbox_events ADD CONSTRAINT outbox_events_status_check CHECK (status IN {STATES})"
    )
    _view()


def _view(
    delivered: str = "status = 'delivered'",
    delivered_at: str = "CASE WHEN status = 'delivered' THEN processed_at END",
) -> None:
    # Replaced by one that leaves the status out, and back, since a drop would take along who may read it.
    op.execute(f"""
        CREATE OR REPLACE VIEW outbox AS
        SELECT event_id AS id, event_type, payload, occurred_at,
               {delivered} AS delivered,
               {delivered_at} AS delivered_at,
               retry_count
        FROM outbox_events
    """)  # noqa: S608 - the words are ours
