"""What a cancel may say, and carrying it out on one run: shared by the routes of agents and conversations."""

from __future__ import annotations

from typing import Annotated

from holdfast.api.bodies import Wire, body_of
from holdfast.api.rooms import Rooms
from holdfast.core.records import Actor, Run


class CancelIn(Wire):
    """`reason` and `rollback` are Holdfast's own: the reason stays with the run, and a rollback takes the turn out of
    the context."""

    run_ids: list[str] | None = None
    reason: str | None = None
    rollback: bool = False


Cancelling = Annotated[CancelIn, body_of(CancelIn)]


async def cancel_run(rooms: Rooms, actor: Actor, run: Run, wish: CancelIn) -> str:
    done = await rooms.engine.cancel(run, actor.user_id, wish.reason, rollback=wish.rollback)
    return "cancelled" if done else "failed"
