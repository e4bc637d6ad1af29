"""Cancels a run when the client of its request disconnects, if the request says `on_disconnect: "cancel"`.

Without it a run continues, and any client can read its stream later. Nothing is cancelled while this server shuts down:
then it is the server that disconnects.
"""

from __future__ import annotations

import asyncio

from fastapi.exceptions import RequestValidationError

from holdfast.api.requests.message_bodies import SendIn
from holdfast.api.services import Services
from holdfast.api.turns.request_identity import RequestIdentity
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.records import Actor, Run

REASON = 'the client disconnected, and its request says on_disconnect: "cancel"'
NOT_IN_BACKGROUND = (
    'on_disconnect: "cancel" cannot be used for a background run: its client is expected to disconnect. '
    "Leave out on_disconnect, or run it in the foreground."
)


def refuse_in_background(body: SendIn) -> None:
    if body.on_disconnect == "cancel":
        where = ("body", "on_disconnect")
        raise RequestValidationError(
            [{"type": "value_error", "loc": where, "msg": NOT_IN_BACKGROUND, "input": body.on_disconnect}]
        )


def watch_client(
    services: Services, actor: Actor, run: Run, body: SendIn, identity: RequestIdentity
) -> asyncio.Task[None] | None:
    """A task that cancels the run when the client disconnects, if the request asks for that. A run that waits for a
    person is not cancelled: it has rested, and its response is complete. Cancel the task at the end of the response."""
    if body.on_disconnect != "cancel":
        return None

    async def cancel_when_gone() -> None:
        await identity.wait_for_disconnect()
        now = await services.engine.run(run.id)
        if now.status in ACTIVE and not services.engine.is_draining:
            await services.engine.cancel(now, actor.user_id, REASON)

    return asyncio.create_task(cancel_when_gone(), name=f"client of {run.id}")
