"""Writes announcements of approvals: numbered rows that subscribers of the inbox read in order."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, insert

from holdfast.storage.runs.audit_log import lock_numbered_logs
from holdfast.storage.schema.record_tables import announcements


def announce(connection: Connection, org_id: str, announced: Iterable[tuple[str, str]], now: datetime) -> None:
    """Announce approvals, each as (kind, approval id), to the subscribers of this organisation.

    The lock makes the numbers appear in order: a subscriber that has read number 7 never asks for number 6 again.
    """
    rows = [
        {"org_id": org_id, "kind": kind, "approval_id": approval_id, "created_at": now}
        for kind, approval_id in announced
    ]
    if rows:
        lock_numbered_logs(connection)
        connection.execute(insert(announcements), rows)
