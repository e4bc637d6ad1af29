"""Adds indexes of runs that hold every column a listing filters by, so that filters are tested on index entries.

Four narrower indexes are dropped, because the new ones serve the same queries. Before this version no query names an
index, so a process of the version before keeps working and uses the new ones.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

FILTERED = (
    "stop_reason", "background", "in_default_conversation", "num_steps", "completed_at", "total_duration_ns",
    "project_id", "base_template_id",
)  # fmt: skip
PARTIAL = (
    ("stop", "stop_reason", "stop_reason <> 'end_turn'"),
    ("project", "project_id", "project_id IS NOT NULL"),
    ("template", "base_template_id", "base_template_id IS NOT NULL"),
)


def upgrade() -> None:
    _index("ix_runs_org_status_wide", "org_id", "status", "created_at", "id", *FILTERED)
    _index("ix_runs_agent_status_wide", "agent_id", "status", "created_at", "id", "conversation_id", *FILTERED)
    op.drop_index("ix_runs_org_status_created", "runs")
    for name, column, condition in PARTIAL:
        others = (other for other in FILTERED if other != column)
        columns = ("org_id", column, "created_at", "id", "status", *others)
        _index(f"ix_runs_org_{name}_wide", *columns, **_only_where(condition))
        op.drop_index(f"ix_runs_org_{name}_created", "runs")


def downgrade() -> None:
    for name, column, condition in PARTIAL:
        _index(f"ix_runs_org_{name}_created", "org_id", column, "created_at", "id", **_only_where(condition))
        op.drop_index(f"ix_runs_org_{name}_wide", "runs")
    _index("ix_runs_org_status_created", "org_id", "status", "created_at", "id")
    op.drop_index("ix_runs_agent_status_wide", "runs")
    op.drop_index("ix_runs_org_status_wide", "runs")


def _index(name: str, *columns: str, **where: Any) -> None:
    op.create_index(name, "runs", list(columns), **where)


def _only_where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}
