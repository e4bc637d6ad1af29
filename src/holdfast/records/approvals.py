"""Decide approval requests of the inbox, one tool call at a time.

A decision takes the same path as any answer from a client: it starts a run of the conversation. The first decision on a
call counts; a later one raises `AlreadyDecided`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.core.approvals.approval_gate import digest_of
from holdfast.core.conversation.messages import Answer, ToolResult
from holdfast.core.errors import AlreadyDecided, Conflict, Invalid
from holdfast.core.lifecycle import WAITING_CALLS
from holdfast.core.records import Actor, Run
from holdfast.core.run_request import RunRequest
from holdfast.ports.stores.approval_store import Approval, ApprovalStore

Start = Callable[[Actor, str, RunRequest], Awaitable[Run]]


class Approvals:
    """`start` is `Engine.start`: records may not import the engine."""

    def __init__(self, store: ApprovalStore, start: Start) -> None:
        self._store = store
        self._start = start

    async def decide(
        self, actor: Actor, approval: Approval, answer: Answer, *, seen_digest: str | None, remember: str | None
    ) -> Run:
        """Decide one call and return the run that carries out the decision.

        The agent continues when the last open call of the batch is decided."""
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
            latest = await self._store.get(actor, approval.id)
            if latest.status not in WAITING_CALLS:
                raise AlreadyDecided([approval.call.id]) from error
            raise


def _allowed(approval: Approval, answer: Answer, remember: str) -> str | None:
    """The digest of the arguments to allow from now on, edited or not; None allows the tool with any arguments."""
    if remember == "tool":
        return None
    edited = None if isinstance(answer, ToolResult) else answer.arguments
    return digest_of(approval.call.arguments if edited is None else edited)


def _digest(approval: Approval) -> str:
    return digest_of(approval.call.arguments)
