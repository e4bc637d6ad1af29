"""The requests in traces are stored as changes: what each changed since the request before it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.storage.schema.columns import Moment

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("traces", sa.Column("history_id", sa.String))
    op.add_column("traces", sa.Column("history_number", sa.Integer))
    op.create_table(
        "request_changes",
        sa.Column("history_id", sa.String, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("conversation_id", sa.String, nullable=False),
        sa.Column("created_at", Moment, nullable=False),
        sa.Column("kept", sa.Integer),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name="fk_request_changes_conversation_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("history_id", "number", name="pk_request_changes"),
    )
    op.create_index("ix_request_changes_conversation", "request_changes", ["conversation_id"])
    op.create_index("ix_request_changes_created", "request_changes", ["created_at"])
