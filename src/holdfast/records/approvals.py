"""The inbox: what waits for a human across all agents, and deciding it one by one.

A decision goes the same way as any answer: it becomes a run of the conversation, through the one loop. The first
decision on a call counts; whoever comes later is told so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.core.errors import AlreadyDecided, Conflict, Invalid
from holdfast.core.gate import digest_of
from holdfast.core.lifecycle import WAITING_CALLS
from holdfast.core.messages import Answer, ToolResult
from holdfast.core.records import Actor, Run
from holdfast.core.request import RunRequest
from holdfast.ports.approvals import Approval, ApprovalStore

Start = Callable[[Actor, str, RunRequest], Awaitable[Run]]


class Approvals:
    def __init__(self, store: ApprovalStore, start: Start) -> None:
        self.store = store
        self._start = start

    async def decide(
        self, actor: Actor, approval: Approval, answer: Answer, *, seen_digest: str | None, remember: str | None
    ) -> Run:
        """Decide one call. With the last open call of its batch decided, the run goes on."""
        if approval.status not in WAITING_CALLS:
            raise AlreadyDecided([approval.call.id])
        if seen_digest is not None and seen_digest != _digest(approval):
            raise Conflict("The arguments are not the ones you decided about; look at the request again.")
        if remember is not None and approval.client_side:
            raise Invalid("A client's own tool cannot be allowed for good: the client answers each call itself.")
        allow = {} if remember is None else {approval.call.name: _allowed(approval, answer, remember)}
        request = RunRequest(
            answers=(answer,), partial=True, background=True, run_type="approval_decision", allow=allow
        )
        try:
            return await self._start(actor, approval.conversation_id, request)
        except Invalid as error:
            latest = await self.store.get(actor, approval.id)
            if latest.status not in WAITING_CALLS:
                raise AlreadyDecided([approval.call.id]) from error
            raise


def _allowed(approval: Approval, answer: Answer, remember: str) -> str | None:
    """What is allowed for good: the tool with any arguments, or with the ones that are run now, edited or not."""
    if remember == "tool":
        return None
    edited = None if isinstance(answer, ToolResult) else answer.arguments
    return digest_of(edited or approval.call.arguments)


def _digest(approval: Approval) -> str:
    return digest_of(approval.call.arguments)
