"""An allowance is for the tool as it was: the digest of the tool that the person allowed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("allowances", sa.Column("tool_digest", sa.String))
