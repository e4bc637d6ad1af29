"""The exceptions of Holdfast, in four families by who has to act on them.

- `AskedWrongly`: the caller must change the request. The request changed nothing.
- `TellTheModel`: the model should be told. It becomes a tool return, never an HTTP status.
- `TryLater`: a retry may succeed (a vendor is down, the server is full).
- `Broken`: the server has a bug; an invariant does not hold. The run stops with an error.

`api/errors.py` holds the one table that maps them to HTTP responses. Clients of the Letta API compare the texts that
begin with CONFLICT, NOT_FOUND or INVALID_ARGUMENT, so these texts must not change.
"""

from __future__ import annotations

from typing import Literal


class HoldfastError(Exception):
    """The base class of all exceptions that Holdfast raises on purpose."""


# ---- the caller asked wrongly ---------------------------------------------------------------------------


class AskedWrongly(HoldfastError):
    """The request cannot be carried out; the caller has to change it."""


class Invalid(AskedWrongly):
    """The request is well formed, but its values make no sense here."""


class InvalidArgument(Invalid):
    """An argument is out of its range; clients see the prefix INVALID_ARGUMENT."""

    def __str__(self) -> str:
        return f"INVALID_ARGUMENT: {super().__str__()}"


class NotFound(AskedWrongly):
    """The record does not exist, or the caller may not see it."""


class UnknownHandle(NotFound):
    """There is no model with this handle."""

    def __init__(self, handle: str, known: list[str]) -> None:
        super().__init__(f"NOT_FOUND: Handle {handle} not found, must be one of {known}{_instead_of(handle, known)}")


def _instead_of(handle: str, known: list[str]) -> str:
    """What to use for a model of the retired cloud, which its examples name."""
    if not handle.startswith("letta/") or not known:
        return ""
    return f". The models of letta/ ran in the cloud of the retired server; use {known[0]} here, for example."


class Conflict(AskedWrongly):
    """The request is valid, but not in the current state of its record."""


class UniqueConflict(Conflict):
    """A record with the same value exists already. `constraint` names the rule of the schema, if it has a name."""

    def __init__(self, constraint: str | None, text: str) -> None:
        super().__init__(text)
        self.constraint = constraint


class PendingApproval(Conflict):
    """A tool call waits for approval, so the conversation takes no new message."""

    def __init__(self, request_message_id: str) -> None:
        super().__init__(
            "CONFLICT: Cannot send a new message: The agent is waiting for approval on a tool call. "
            "Please approve or deny the pending request before continuing."
        )
        self.request_message_id = request_message_id


class ConversationBusy(Conflict):
    """The conversation has an active run."""

    def __init__(self, run_id: str | None) -> None:
        which = f" (run_id={run_id})" if run_id else ""
        super().__init__(
            "CONFLICT: Cannot send a new message: Another request is currently being processed for this "
            f"conversation{which}. Please wait for it to complete."
        )
        self.run_id = run_id


class AlreadyDecided(Conflict):
    """The call was already approved or denied; the first decision counts."""

    def __init__(self, call_ids: list[str]) -> None:
        super().__init__(f"Already decided: {', '.join(call_ids)}. The first decision counts.")


class NeedsApproval(Conflict):
    """The tool needs approval, so it cannot be run directly over the API: only a run can wait for a person."""

    def __init__(self, tool_name: str, by: str | None = None) -> None:
        because = f" ({by})" if by else ""
        super().__init__(
            f"CONFLICT: The tool {tool_name} requires approval{because}, so it cannot be run directly. "
            "Let the agent call it and approve the call, or change the agent's rule."
        )


class NothingToCancel(Conflict):
    """The run is already finished."""


class Forbidden(AskedWrongly):
    """The caller is authenticated but not allowed to do this."""


# ---- the model should be told -----------------------------------------------------------------------------


class TellTheModel(HoldfastError):
    """Becomes the text of a tool return with status `error`."""


# ---- trying later may help ----------------------------------------------------------------------------------


class TryLater(HoldfastError):
    """The same request may succeed later."""


class TooManyRuns(TryLater):
    """A limit on runs is reached; the request may succeed when other runs have finished."""

    retry_after_seconds = 1


class StorageDown(TryLater):
    """The database cannot be reached, or its disk is full; the request may succeed when that is fixed."""

    retry_after_seconds = 1


ModelErrorKind = Literal[
    "llm_error",  # the vendor failed (5xx, broken stream, anything unnamed)
    "llm_bad_request",  # the vendor refused the request
    "llm_authentication",
    "llm_insufficient_credits",
    "llm_rate_limit",
    "llm_overloaded",
    "llm_timeout",
    "llm_empty_response",
    "context_overflow",  # the prompt is too long; the loop compacts the context and calls the model again
]


class ModelError(TryLater):
    """A model call failed. Clients see `kind`; `retryable` says whether the same call may succeed later."""

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        detail: str | None = None,
        retryable: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.message = message
        self.detail = detail
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds


class LostLease(TryLater):
    """Another worker owns the run now. The worker that gets this error must stop and write nothing more."""


# ---- we have a bug --------------------------------------------------------------------------------------------


class Broken(HoldfastError):
    """An invariant does not hold. The message says which one."""
