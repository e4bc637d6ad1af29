"""Adds an index of a sample, one run in 64, for percentiles of durations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

DRAWN = "id < 'run-04' AND total_duration_ns IS NOT NULL"
COLUMNS = (
    "org_id", "total_duration_ns", "id", "created_at", "agent_id", "conversation_id", "status", "stop_reason",
    "background", "in_default_conversation", "num_steps", "completed_at", "project_id", "base_template_id",
)  # fmt: skip


def upgrade() -> None:
    drawn = sa.text(DRAWN)
    op.create_index("ix_runs_org_drawn", "runs", list(COLUMNS), sqlite_where=drawn, postgresql_where=drawn)


def downgrade() -> None:
    op.drop_index("ix_runs_org_drawn", "runs")
