"""Traces of model calls, and which models a step tried before the one that answered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.storage.schema.columns import Document, Moment

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("steps", sa.Column("failed_models", Document, nullable=True))
    op.create_table(
        "traces",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("step_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("call_type", sa.String(), nullable=False),
        sa.Column("about", Document, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_traces_org_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_traces_run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_traces"),
    )
    op.create_index("ix_traces_step", "traces", ["step_id"])
    op.create_index("ix_traces_run_created", "traces", ["run_id", "created_at"])
    op.create_index("ix_traces_created", "traces", ["created_at"])


def downgrade() -> None:
    op.drop_table("traces")
    op.drop_column("steps", "failed_models")
