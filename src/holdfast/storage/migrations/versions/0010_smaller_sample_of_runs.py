"""Adds an index of a smaller sample, one run in 256, from which listings were planned. 0013 removes it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

LOOKED_AT = "id < 'run-01' AND total_duration_ns IS NOT NULL"
COLUMNS = (
    "org_id", "total_duration_ns", "id", "created_at", "agent_id", "conversation_id", "status", "stop_reason",
    "background", "in_default_conversation", "num_steps", "completed_at", "project_id", "base_template_id",
)  # fmt: skip


def upgrade() -> None:
    few = sa.text(LOOKED_AT)
    op.create_index("ix_runs_org_looked_at", "runs", list(COLUMNS), sqlite_where=few, postgresql_where=few)


def downgrade() -> None:
    op.drop_index("ix_runs_org_looked_at", "runs")
