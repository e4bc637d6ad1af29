"""How much one organisation may have under way, and how much may wait in one conversation.

Counted in the transaction that accepts a run, up to the limit and not beyond, so a full house costs no more than a
limit's worth of index entries. Processes that accept at the same instant may together go over by a few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from holdfast.core.errors import TooManyRuns
from holdfast.core.records import Run
from holdfast.storage.prepared import ACTIVE_RUN
from holdfast.storage.tables import runs


@dataclass(frozen=True, slots=True)
class RunLimits:
    unfinished: int = 2000  # runs of one organisation that do not rest
    queued: int = 100  # runs that wait for their turn in one conversation


def refuse_if_full(connection: Connection, run: Run, limits: RunLimits) -> None:
    """An answer to what waits is never refused: it carries on with work that was let in before."""
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
def _counting(column: str) -> Select[Any]:
    unfinished = select(runs.c.id).where(runs.c[column] == bindparam("value"), ACTIVE_RUN)
    if column == "conversation_id":
        unfinished = unfinished.where(runs.c.queued)
    return select(func.count()).select_from(unfinished.limit(bindparam("most")).subquery())
