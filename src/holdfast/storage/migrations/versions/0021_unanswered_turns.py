"""A conversation knows where its turns without an answer begin, so that messages that are sent again are read once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("conversations", sa.Column("unanswered_from", sa.BigInteger))
