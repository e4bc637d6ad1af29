"""A step says what its model call was for: summaries of compactions have steps too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("steps", sa.Column("call_type", sa.String(), nullable=False, server_default="agent_step"))


def downgrade() -> None:
    op.drop_column("steps", "call_type")
