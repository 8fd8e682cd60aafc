"""The outbox's migrations and one more, for the tests of what happens between two versions."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.commands import ROOT

SECOND = '''"""The second."""

from alembic import op

revision, down_revision = "outbox_0002", "outbox_0001"


def upgrade():
    op.execute("{up}")


def downgrade():
    op.execute("{down}")
'''


def with_a_second(
    folder: Path, up: str = "CREATE TABLE outbox_more ()", down: str = "DROP TABLE outbox_more"
) -> Path:
    """Copy the outbox's into a folder, unless that was done, and add one of these statements."""
    shutil.copytree(ROOT / "migrations" / "outbox", folder, dirs_exist_ok=True)
    (folder / "0002_second.py").write_text(SECOND.format(up=up, down=down))
    return folder
