"""The table of the schema's version has another name, so that an older process does not start on a newer database.

`storage.schema.migrate` renames it, before Alembic reads it. Versions before this one took every database that was
newer than themselves for one that they could use.
"""

from __future__ import annotations

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing is left to do."""
