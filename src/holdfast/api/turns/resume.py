"""Find the run whose stream a client wants to resume: by run id, by the otid of a message, or the active one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.api.http.parameters import MAX_COMPARED_INT
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.services import Services
from holdfast.api.turns.request_identity import key_of_otid
from holdfast.core.errors import InvalidArgument, NotFound
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.records import Actor, Conversation, Run


class ResumeIn(RequestBody):
    starting_after: int = Field(0, ge=0, le=MAX_COMPARED_INT)
    include_pings: bool | None = None
    agent_id: str | None = None
    run_id: str | None = None
    otid: str | None = None


ResumeBody = Annotated[ResumeIn, body_of(ResumeIn)]


def last_event_number(last_event_id: str | None) -> int | None:
    """The number in a `Last-Event-ID` header, or None if the header holds anything else."""
    if last_event_id is None or not (last_event_id.isascii() and last_event_id.isdigit()):
        return None
    return min(int(last_event_id[:20]), MAX_COMPARED_INT)


def check_names_of(run: Run, body: ResumeIn) -> None:
    """Raise `NotFound` if the body names another run, agent or message than this run's."""
    if body.run_id not in (None, run.id) or body.agent_id not in (None, run.agent_id):
        raise NotFound(f"Run {run.id} is not the run or not of the agent that the body names.")
    if body.otid is not None and key_of_otid(body.otid) not in (run.request.get("keys") or ()):
        raise NotFound(f"No run found for otid={body.otid}: run {run.id} did not begin with that message.")


async def run_to_resume(services: Services, actor: Actor, conversation: Conversation, body: ResumeIn) -> Run:
    if body.run_id is not None:
        run = await services.history.run(actor, body.run_id)
        if run.conversation_id != conversation.id:
            raise NotFound(f"Run {body.run_id} does not belong to this conversation.")
        return run
    if body.otid is not None:
        known = await services.engine.known_request(conversation.id, (key_of_otid(body.otid),))
        if known is None:
            raise NotFound(f"No run found for otid={body.otid}. The run may have expired or never existed.")
        return await services.history.run(actor, known.run_id)
    for run in reversed(await services.history.open_runs(actor, conversation_id=conversation.id)):
        if run.status in ACTIVE:
            return run
    raise InvalidArgument("No active runs found for this conversation.")
