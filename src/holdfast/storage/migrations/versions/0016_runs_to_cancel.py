"""An index of the runs that are to be cancelled, which each process reads every second for its own.

From this version on, a page of a streamed reply does not update `runs.last_event`: only a checkpoint does. An older
process that takes such a run over would number its events from there and meet the numbers that are taken, so this
migration is one of `BREAKING`.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

TO_CANCEL = "status IN ('created', 'running') AND cancel_asked_at IS NOT NULL"


def upgrade() -> None:
    few = sa.text(TO_CANCEL)
    op.create_index("ix_runs_active_cancel", "runs", ["lease_owner"], sqlite_where=few, postgresql_where=few)
