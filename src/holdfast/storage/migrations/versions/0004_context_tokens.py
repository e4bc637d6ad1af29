"""Stores the size of each context in tokens, so that it need not be counted before every step."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("conversations", sa.Column("context_tokens", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("conversations", "context_tokens")
