"""Requests that a client's library sends again by itself. Implements `ports.repeats.Repeats`.

The official clients send a request again when its answer does not come in time or the line breaks, with nothing that
names it but a count of tries. So it is known by what it says. That alone is not enough, for people say the same thing
twice: it is the same request only if nobody can have heard the answer to the first. Who waited for that hung up or was
cut off, which is noted; or the process at which they waited died.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import Connection, RowMapping, delete, insert, select

from holdfast.core.lifecycle import ACTIVE
from holdfast.core.records import Actor, Run
from holdfast.ports.clock import Clock
from holdfast.ports.repeats import Repeat
from holdfast.storage.database import Database
from holdfast.storage.run_store import run_value
from holdfast.storage.tables import run_keys, runs

LATE = timedelta(seconds=30)  # after its answer was lost a request comes again sooner than that, or not at all
LOOKED_AT = 20  # runs of a conversation; a request is not sent again after that many others

Died = Callable[[str], bool]


class SqlRepeats:
    def __init__(self, database: Database, clock: Clock, here: str, died: Died) -> None:
        self._database = database
        self._clock = clock
        self.here = here
        self._died = died

    async def unheard(self, run: Run) -> None:
        await self._database.write(_note, run, self._clock.now())

    async def find(self, actor: Actor, sought: Repeat) -> Run | None:
        return await self._database.read(_find, actor, sought, self._died, self._clock.now())


def _key(run_id: str) -> str:
    return f"unheard:{run_id}"


def _note(connection: Connection, run: Run, now: datetime) -> None:
    noted = {"conversation_id": run.conversation_id, "key": _key(run.id)}
    connection.execute(delete(run_keys).where(*(run_keys.c[name] == value for name, value in noted.items())))
    digest = run.request["body_digest"]
    connection.execute(insert(run_keys), {**noted, "run_id": run.id, "body_digest": digest, "created_at": now})


def _find(connection: Connection, actor: Actor, sought: Repeat, died: Died, now: datetime) -> Run | None:
    of_whom = (runs.c.conversation_id == sought.conversation_id, runs.c.created_by == actor.user_id)
    newest = select(runs).where(*of_whom).order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(LOOKED_AT)
    for row in connection.execute(newest).mappings():
        if row["request"].get("body_digest") != sought.body_digest:
            continue
        at_work = row["status"] in ACTIVE
        same = (at_work and sought.rejectable) or _is_unheard(connection, row, died, None if at_work else now - LATE)
        return run_value(row) if same else None
    return None


def _is_unheard(connection: Connection, row: RowMapping, died: Died, since: datetime | None) -> bool:
    """Whether nobody can have heard the answer, and it was lost since then."""
    waiter = row["request"].get("waiter")
    if waiter is None:
        return False
    noted = (run_keys.c.conversation_id == row["conversation_id"], run_keys.c.key == _key(row["id"]))
    hung_up_at = connection.execute(select(run_keys.c.created_at).where(*noted)).scalar()
    if hung_up_at is not None and (since is None or hung_up_at >= since):
        return True
    return (since is None or row["completed_at"] >= since) and died(waiter)
