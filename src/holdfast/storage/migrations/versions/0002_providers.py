"""Providers that organisations bring, and which of them a step used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from holdfast.storage.schema.columns import Document, Moment

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "providers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("org_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("provider_type", sa.String(), nullable=False),
        sa.Column("base_url", sa.Text(), nullable=True),
        sa.Column("sealed", sa.Text(), nullable=True),
        sa.Column("refreshed_at", Moment(), nullable=True),
        sa.Column("document", Document, nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("updated_at", Moment(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=True),
        sa.Column("updated_by", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["org_id"], ["organizations.id"], name="fk_providers_org_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_providers"),
        sa.UniqueConstraint("org_id", "name", name="uq_providers_org_id_name"),
    )
    op.create_table(
        "provider_models",
        sa.Column("provider_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("document", Document, nullable=False),
        sa.ForeignKeyConstraint(
            ["provider_id"], ["providers.id"], name="fk_provider_models_provider_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("provider_id", "name", name="pk_provider_models"),
    )
    op.add_column("steps", sa.Column("provider_id", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("steps", "provider_id")
    op.drop_table("provider_models")
    op.drop_table("providers")
