"""Runs are listed by owner and outcome: seven indexes instead of thirteen, no triggers, no copies of columns.

Processes of an older version list runs, and find the runs to cancel, by the columns that this migration drops. So it is
not applied beside them: `storage.schema.migrate` refuses, and says to stop them first.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

Index = tuple[str, tuple[str, ...], str | None]

OLD_RUN_INDEXES = (
    *("ix_runs_org_created", "ix_runs_agent_created", "ix_runs_conversation_created", "ix_runs_kind_created"),
    *("ix_runs_agent_kind_created", "ix_runs_org_duration", "ix_runs_agent_duration", "ix_runs_kind_duration"),
    *("ix_runs_org_drawn", "ix_runs_org_looked_at", "ix_runs_queued", "ix_runs_active_lease"),
)
OLD_TOOL_INDEXES = (
    *("ix_run_tools_org_tool_created", "ix_run_tools_org_tool_kind_created", "ix_run_tools_org_tool_duration"),
    *("ix_run_tools_drawn", "ix_run_tools_agent_tool_created"),
)
BY_OUTCOME = (
    *("stop_reason", "background", "created_at", "id"),
    *("total_duration_ns", "num_steps", "in_default_conversation", "project_id", "base_template_id"),
)
BY_DURATION = (
    *("total_duration_ns", "id", "created_at", "stop_reason", "background"),
    *("num_steps", "in_default_conversation", "project_id", "base_template_id"),
)
IS_ACTIVE = "status IN ('created', 'running')"
RUN_INDEXES: tuple[Index, ...] = (
    ("ix_runs_org_outcome", ("org_id", *BY_OUTCOME), None),
    ("ix_runs_agent_outcome", ("agent_id", *BY_OUTCOME), None),
    ("ix_runs_conversation_outcome", ("conversation_id", *BY_OUTCOME), None),
    ("ix_runs_org_duration", ("org_id", *BY_DURATION), "total_duration_ns IS NOT NULL"),
    ("ix_runs_agent_duration", ("agent_id", *BY_DURATION), "total_duration_ns IS NOT NULL"),
    ("ix_runs_active_lease", ("queued", "lease_expires_at"), IS_ACTIVE),
)


def upgrade() -> None:
    _drop_triggers()
    for name in OLD_RUN_INDEXES:
        op.drop_index(name, "runs")
    for name in OLD_TOOL_INDEXES:
        op.drop_index(name, "run_tools")
    op.drop_column("runs", "kind")
    for name in ("agent_id", "conversation_id", "kind", "total_duration_ns", "created_at"):
        op.drop_column("run_tools", name)
    op.drop_table("run_kinds")
    for name, columns, condition in RUN_INDEXES:
        where: dict[str, Any] = {}
        if condition is not None:
            where = {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}
        op.create_index(name, "runs", list(columns), **where)
    op.create_index("ix_run_tools_org_tool", "run_tools", ["org_id", "tool", "run_id"])


def _drop_triggers() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP TRIGGER runs_have_a_kind ON runs")
        op.execute("DROP TRIGGER runs_tell_their_tools ON runs")
        op.execute("DROP TRIGGER run_tools_know_their_run ON run_tools")
        for function in ("kind_of_a_run", "tell_the_tools_of_a_run", "run_of_a_tool"):
            op.execute(f"DROP FUNCTION {function}")
        return
    for trigger in ("runs_get_a_kind", "runs_change_their_kind", "runs_tell_their_tools", "run_tools_know_their_run"):
        op.execute(f"DROP TRIGGER {trigger}")
