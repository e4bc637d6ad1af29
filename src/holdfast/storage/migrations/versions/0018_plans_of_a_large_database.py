"""Statements that read all rows of an organisation get an index, and a call is deleted with its run only.

Tool calls and allowances referred to their agent by a foreign key without an index, so that each change of an agent
read all tool calls there ever were. Their run and their conversation, which belong to the agent, delete them too.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

IN_ORDER = ("org_id", "created_at", "id")
Index = tuple[str, str, tuple[str, ...], str | None]
NEW: tuple[Index, ...] = (
    ("ix_agents_org_name", "agents", ("org_id", "name", "created_at", "id"), None),
    ("ix_steps_org_feedback", "steps", IN_ORDER, "feedback IS NOT NULL"),
    ("ix_ledger_waiting", "ledger", ("org_id", "asked_at", "approval_id"), "NOT returned"),
)
CHANGED: tuple[Index, ...] = (
    ("ix_conversations_agent_created", "conversations", ("agent_id", "is_default", "created_at", "id"), None),
    ("ix_conversations_org_created", "conversations", IN_ORDER, "NOT is_default"),
    ("ix_allowances_org_created", "allowances", IN_ORDER, "revoked_at IS NULL"),
)
DROPPED_KEYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ledger", ("agent_id", "conversation_id")),
    ("allowances", ("agent_id",)),
)


def upgrade() -> None:
    for table, columns in DROPPED_KEYS:
        with op.batch_alter_table(table) as batch:
            for column in columns:
                batch.drop_constraint(f"fk_{table}_{column}", type_="foreignkey")
    for name, table, _, _ in CHANGED:
        op.drop_index(name, table)
    for name, table, columns, condition in (*NEW, *CHANGED):
        where = None if condition is None else sa.text(condition)
        op.create_index(name, table, list(columns), sqlite_where=where, postgresql_where=where)
