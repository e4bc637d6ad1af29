"""Which run a client means when it wants to watch again: by run id, by the otid of a message it sent, or the newest."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.rooms import Rooms
from holdfast.core.errors import InvalidArgument, NotFound
from holdfast.core.records import Actor, Conversation, Run
from holdfast.ports.history import RunFilter
from holdfast.ports.paging import Page


class ResumeIn(BaseModel):
    model_config = ConfigDict(extra="ignore")

    starting_after: int = Field(0, ge=0)
    include_pings: bool = True
    agent_id: str | None = None
    run_id: str | None = None
    otid: str | None = None


async def run_to_resume(rooms: Rooms, actor: Actor, conversation: Conversation, body: ResumeIn) -> Run:
    if body.run_id is not None:
        run = await rooms.history.run(actor, body.run_id)
        if run.conversation_id != conversation.id:
            raise NotFound(f"Run {body.run_id} does not belong to this conversation.")
        return run
    recent = await rooms.history.runs(actor, RunFilter(conversation_id=conversation.id), Page(limit=100))
    if body.otid is not None:
        run = next((run for run in recent if body.otid in sent_otids(run)), None)  # type: ignore[assignment]
        if run is None:
            raise NotFound(f"No run found for otid={body.otid}. The run may have expired or never existed.")
        return run
    active = next((run for run in recent if run.status in ("created", "running")), None)
    if active is None:
        raise InvalidArgument("No active runs found for this conversation.")
    return active


def sent_otids(run: Run) -> set[str]:
    """The otids of the messages that a run was asked with."""
    return {message["otid"] for message in run.request.get("messages", ()) if message.get("otid")}
