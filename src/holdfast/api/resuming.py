"""Which run a client means when it wants to watch again: by run id, by the otid of a message it sent, or the newest."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.api.bodies import Wire, body_of
from holdfast.api.naming import key_of_otid
from holdfast.api.parameters import LAST_NUMBER
from holdfast.api.rooms import Rooms
from holdfast.core.errors import InvalidArgument, NotFound
from holdfast.core.records import Actor, Conversation, Run
from holdfast.ports.history import RunFilter
from holdfast.ports.paging import Page


class ResumeIn(Wire):
    starting_after: int = Field(0, ge=0, le=LAST_NUMBER)
    include_pings: bool | None = None
    agent_id: str | None = None
    run_id: str | None = None
    otid: str | None = None


Resumed = Annotated[ResumeIn, body_of(ResumeIn)]


def number_in(last_event_id: str | None) -> int | None:
    """The number that a `Last-Event-ID` header names; anything else in it is no number of ours."""
    if last_event_id is None or not (last_event_id.isascii() and last_event_id.isdigit()):
        return None
    return min(int(last_event_id[:20]), LAST_NUMBER)


async def run_to_resume(rooms: Rooms, actor: Actor, conversation: Conversation, body: ResumeIn) -> Run:
    if body.run_id is not None:
        run = await rooms.history.run(actor, body.run_id)
        if run.conversation_id != conversation.id:
            raise NotFound(f"Run {body.run_id} does not belong to this conversation.")
        return run
    if body.otid is not None:
        known = await rooms.engine.known_request(conversation.id, (key_of_otid(body.otid),))
        if known is None:
            raise NotFound(f"No run found for otid={body.otid}. The run may have expired or never existed.")
        return await rooms.history.run(actor, known.run_id)
    active = RunFilter(conversation_id=conversation.id, statuses=("created", "running"))
    for run in await rooms.history.runs(actor, active, Page(limit=1)):
        return run
    raise InvalidArgument("No active runs found for this conversation.")
