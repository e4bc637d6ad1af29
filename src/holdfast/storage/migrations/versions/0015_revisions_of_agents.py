"""An agent has a revision, which every change of what a decision reads about the agent raises."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agents", sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"))
