"""MCP servers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.storage.schema import columns

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "mcp_servers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("server_name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("document", columns.Document, nullable=False),
        sa.Column("created_at", columns.Moment(), nullable=False),
        sa.Column("updated_at", columns.Moment(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=True),
        sa.Column("updated_by", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["org_id"], ["organizations.id"], name=op.f("fk_mcp_servers_org_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mcp_servers")),
        sa.UniqueConstraint("org_id", "server_name", name=op.f("uq_mcp_servers_org_id_server_name")),
    )


def downgrade() -> None:
    op.drop_table("mcp_servers")
