"""Adds archives, their passages, and which agents use them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.storage.schema.columns import Document, Moment

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def _stamps() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("updated_at", Moment(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=True),
        sa.Column("updated_by", sa.String(), nullable=True),
    )


def upgrade() -> None:
    op.create_table(
        "archives",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("document", Document, nullable=False),
        *_stamps(),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_archives_org_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_archives"),
    )
    op.create_index("ix_archives_org_created", "archives", ["org_id", "created_at", "id"])
    op.create_table(
        "agent_archives",
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("archive_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_agent_archives_agent_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["archive_id"], ["archives.id"], name="fk_agent_archives_archive_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "archive_id", name="pk_agent_archives"),
    )
    op.create_index("ix_agent_archives_archive", "agent_archives", ["archive_id"])
    op.create_table(
        "passages",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("archive_id", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("document", Document, nullable=False),
        *_stamps(),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_passages_org_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["archive_id"], ["archives.id"], name="fk_passages_archive_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_passages"),
    )
    op.create_index("ix_passages_archive_created", "passages", ["archive_id", "created_at", "id"])


def downgrade() -> None:
    op.drop_table("passages")
    op.drop_table("agent_archives")
    op.drop_table("archives")
