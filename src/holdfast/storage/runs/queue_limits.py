"""Limits the unfinished runs of an organisation and the queued runs of a conversation.

Runs are counted in the transaction that accepts a run, and only up to the limit, so that the count reads at most that
many index entries. Processes that accept runs at the same instant may together exceed a limit by a few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from sqlalchemy import Connection, bindparam, func, select

from holdfast.core.errors import TooManyRuns
from holdfast.core.records import Run
from holdfast.storage.schema.record_tables import runs
from holdfast.storage.sql.prepared import Prepared


@dataclass(frozen=True, slots=True)
class QueueLimits:
    unfinished: int = 2000  # active runs of one organisation, queued ones included
    queued: int = 100  # runs that wait in the queue of one conversation


def refuse_if_full(connection: Connection, run: Run, limits: QueueLimits) -> None:
    """Raise `TooManyRuns` if a limit is reached. An answer to a waiting call is never refused: it continues a turn that
    was already accepted."""
    if run.request.get("answers") is not None:
        return
    if run.queued and _count(connection, "conversation_id", run.conversation_id, limits.queued) >= limits.queued:
        raise TooManyRuns(f"{limits.queued} runs already wait in this conversation. Send this again later.")
    if _count(connection, "org_id", run.org_id, limits.unfinished) >= limits.unfinished:
        raise TooManyRuns(f"{limits.unfinished} runs of this organisation are unfinished. Send this again later.")


def _count(connection: Connection, column: str, value: str, most: int) -> int:
    found: int = connection.execute(_counting(column), {"value": value, "most": most}).scalar_one()
    return found


@cache
def _counting(column: str) -> Prepared:
    unfinished = select(runs.c.id).where(runs.c[column] == bindparam("value"), runs.c.stop_reason.is_(None))
    if column == "conversation_id":
        unfinished = unfinished.where(runs.c.queued)
    return Prepared(select(func.count()).select_from(unfinished.limit(bindparam("most")).subquery()))
