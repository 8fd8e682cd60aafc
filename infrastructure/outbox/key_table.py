"""The table of the keys that encrypt sealed fields, as the code sees it; the migrations are what makes it (O6)."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, Table, Text, Uuid, text

from outbox_kernel.infrastructure.outbox.tables import clock, moment, outbox_metadata

outbox_subject_keys = Table(
    "outbox_subject_keys",
    outbox_metadata,
    Column("id", Uuid, primary_key=True, comment="by which sealed fields name it"),
    moment("created_at", "when something was first sealed with it", nullable=False, server_default=clock()),
    moment("forgotten_at", "when it was destroyed: what it sealed is forgotten"),
    Column("subject", Text, nullable=False, comment="whose it is, as the events' own fields say it"),
    Column("master_key", Text, comment="id of the master key that encrypts it; null once it is destroyed"),
    Column("wrapped", Text, comment="the key, encrypted; null once it is destroyed"),
    CheckConstraint(
        "(forgotten_at IS NULL) = (wrapped IS NOT NULL) AND (wrapped IS NULL) = (master_key IS NULL)",
        name="forgotten",
    ),
    Index(
        "outbox_subject_keys_living", "subject", unique=True, postgresql_where=text("forgotten_at IS NULL")
    ),
    comment="A key for each subject, which encrypts the sealed fields of its events; to forget destroys it.",
)
