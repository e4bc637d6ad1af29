"""The same request twice is one run: the second is answered with the first one's run.

How the first is found is the caller's: by its names here, by its words where a client's library tries again
(api/sending.py).

A sender names its requests (the otids of its messages, or an `Idempotency-Key`). A name that is known with the same
body gives the run it became, whatever has become of that; with another body it is a mistake of the sender, and refused.
The names are kept for as long as the run's events are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.core.errors import AskedWrongly, Conflict
from holdfast.core.records import Run
from holdfast.core.request import RunRequest
from holdfast.ports.runs import RunStore


async def once(find: Callable[[], Awaitable[Run | None]], accept: Callable[[], Awaitable[Run]]) -> Run:
    """The run that a request became earlier, or else becomes now.

    A refusal is looked at twice: the same request may have been accepted a moment ago, and then it is the reason why
    this one found the conversation busy or its approval already answered.
    """
    if (run := await find()) is not None:
        return run
    try:
        return await accept()
    except AskedWrongly:
        if (run := await find()) is not None:
            return run
        raise


async def earlier(store: RunStore, conversation_id: str, request: RunRequest) -> Run | None:
    """The run that a request of one of these names became."""
    known = await store.known_request(conversation_id, request.keys)
    if known is None:
        return None
    if known.body_digest != request.body_digest:
        _, _, name = known.key.partition(":")
        raise Conflict(
            f"CONFLICT: {name} already names another request, which became run {known.run_id}. Send the same body to "
            "get that run, or a new otid or Idempotency-Key to start a new one."
        )
    return await store.run(known.run_id)
