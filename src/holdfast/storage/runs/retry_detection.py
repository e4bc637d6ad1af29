"""Detects automatic retries of a client library. Implements `ports.stores.retry_detection.RetryDetection`.

The official clients retry a request after a timeout or a broken connection, and send nothing that identifies it but a
retry count. So a retry is recognised by the digest of its body. That alone is not enough, because a person may send the
same text twice: it is a retry only if the response to the first request cannot have been delivered. Either its client
disconnected or was cut off, which is stored under a key in `run_keys`; or the process that served it crashed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, insert, select

from holdfast.core.lifecycle import ACTIVE
from holdfast.core.records import Actor, Run
from holdfast.ports.clock import Clock
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter
from holdfast.ports.stores.retry_detection import RetriedRequest
from holdfast.storage.run_listing.list_runs import list_runs
from holdfast.storage.schema.record_tables import run_keys
from holdfast.storage.sql.database import Database

RETRY_WINDOW = timedelta(seconds=30)  # a client retries within this time after the response was lost, or not at all
RUNS_SEARCHED = 20  # the newest of a conversation; a client does not retry after that many other requests

HasDied = Callable[[str], bool]


class SqlRetryDetection:
    def __init__(self, database: Database, clock: Clock, this_process: str, died: HasDied) -> None:
        self._database = database
        self._clock = clock
        self.this_process = this_process
        self._died = died

    async def record_undelivered(self, run: Run) -> None:
        await self._database.write(_record_undelivered, run, self._clock.now())

    async def find(self, actor: Actor, sought: RetriedRequest) -> Run | None:
        return await self._database.read(_find, actor, sought, self._died, self._clock.now())


def _undelivered_key(run_id: str) -> str:
    """The key under which `run_keys` stores that the response of a run was not delivered."""
    return f"unheard:{run_id}"


def _record_undelivered(connection: Connection, run: Run, now: datetime) -> None:
    key = {"conversation_id": run.conversation_id, "key": _undelivered_key(run.id)}
    connection.execute(delete(run_keys).where(*(run_keys.c[name] == value for name, value in key.items())))
    digest = run.request["body_digest"]
    connection.execute(insert(run_keys), {**key, "run_id": run.id, "body_digest": digest, "created_at": now})


def _find(connection: Connection, actor: Actor, sought: RetriedRequest, died: HasDied, now: datetime) -> Run | None:
    """The run of the newest request with the same body, if this request is a retry of it."""
    for run in list_runs(connection, actor, RunFilter(conversation_id=sought.conversation_id), Page(RUNS_SEARCHED)):
        if run.created_by != actor.user_id or run.request.get("body_digest") != sought.body_digest:
            continue
        active = run.status in ACTIVE
        retry = (active and sought.rejectable) or _is_undelivered(
            connection, run, died, None if active else now - RETRY_WINDOW
        )
        return run if retry else None
    return None


def _is_undelivered(connection: Connection, run: Run, died: HasDied, since: datetime | None) -> bool:
    """True if the response was never delivered: its client disconnected, or the process serving it died, after `since`
    (at any time, if None)."""
    waiter = run.request.get("waiter")
    if waiter is None:
        return False
    noted = (run_keys.c.conversation_id == run.conversation_id, run_keys.c.key == _undelivered_key(run.id))
    disconnected_at = connection.execute(select(run_keys.c.created_at).where(*noted)).scalar()
    if disconnected_at is not None and (since is None or disconnected_at >= since):
        return True
    return (since is None or (run.completed_at is not None and run.completed_at >= since)) and died(waiter)
