"""Runs say which process accepted them, and whether their input was written then.

Breaking: a worker of an older version would write such an input a second time.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("accepted_by", sa.String))
    op.add_column("runs", sa.Column("input_version", sa.BigInteger))
