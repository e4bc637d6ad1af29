"""Errors say who must act. Four families, and every error we raise belongs to one of them.

- `AskedWrongly`: the caller must change the request. Nothing was changed by it.
- `TellTheModel`: the model should be told; it becomes a tool return, never an HTTP status.
- `TryLater`: nobody did wrong and trying again may help (a vendor is down, we are full).
- `Broken`: we have a bug, or an invariant does not hold; the run stops loudly.

`api/problems.py` holds the one table that turns them into HTTP. Texts in quotes are matched by clients in the
field, so they are kept to the letter (contract/wire.md, section 3).
"""

from __future__ import annotations

from typing import Literal


class HoldfastError(Exception):
    """The root, so that a caller can tell our errors from everything else."""


# ---- the caller asked wrongly ---------------------------------------------------------------------------


class AskedWrongly(HoldfastError):
    """The request cannot be done as it stands."""


class Invalid(AskedWrongly):
    """The request is well formed but makes no sense here."""


class InvalidArgument(Invalid):
    """An argument is out of its range; clients see the prefix INVALID_ARGUMENT."""

    def __str__(self) -> str:
        return f"INVALID_ARGUMENT: {super().__str__()}"


class NotFound(AskedWrongly):
    """The thing named does not exist, or is not the caller's to see."""


class UnknownHandle(NotFound):
    """No such model."""

    def __init__(self, handle: str, known: list[str]) -> None:
        super().__init__(f"NOT_FOUND: Handle {handle} not found, must be one of {known}")


class Conflict(AskedWrongly):
    """Right request, wrong moment."""


class PendingApproval(Conflict):
    """A call waits for a human, so a new message has to wait too."""

    def __init__(self, request_message_id: str) -> None:
        super().__init__(
            "CONFLICT: Cannot send a new message: The agent is waiting for approval on a tool call. "
            "Please approve or deny the pending request before continuing."
        )
        self.request_message_id = request_message_id


class ConversationBusy(Conflict):
    """Another run holds the conversation."""

    def __init__(self, run_id: str | None) -> None:
        which = f" (run_id={run_id})" if run_id else ""
        super().__init__(
            "CONFLICT: Cannot send a new message: Another request is currently being processed for this "
            f"conversation{which}. Please wait for it to complete."
        )
        self.run_id = run_id


class AlreadyDecided(Conflict):
    """Somebody else was first."""

    def __init__(self, call_ids: list[str]) -> None:
        super().__init__(f"Already decided: {', '.join(call_ids)}. The first decision counts.")


class NeedsApproval(Conflict):
    """The gate would ask a human about this call; only a run can wait for one."""

    def __init__(self, tool_name: str, by: str | None = None) -> None:
        because = f" ({by})" if by else ""
        super().__init__(
            f"CONFLICT: The tool {tool_name} requires approval{because}, so it cannot be run by hand. "
            "Let the agent call it and approve the call, or change the agent's rule."
        )


class NothingToCancel(Conflict):
    pass


class Forbidden(AskedWrongly):
    """The caller is known and may not do this."""


# ---- the model should be told -----------------------------------------------------------------------------


class TellTheModel(HoldfastError):
    """Becomes the text of a tool return with status `error`."""


# ---- trying later may help ----------------------------------------------------------------------------------


class TryLater(HoldfastError):
    pass


class TooManyRuns(TryLater):
    """We are full; the same request may succeed when others are done."""

    retry_after_seconds = 1


class StorageDown(TryLater):
    """The database cannot be reached, or its disk is full; the same request may succeed when that is mended."""

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
    "context_overflow",  # the prompt does not fit; the loop compacts and tries again
]


class ModelError(TryLater):
    """A model call failed. `kind` is the name clients see; `retryable` says whether the same call may succeed."""

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
    """Somebody else owns the run now; whoever sees this must write nothing more and go away quietly."""


# ---- we have a bug --------------------------------------------------------------------------------------------


class Broken(HoldfastError):
    """An invariant does not hold. Say which, so that the bug can be found."""
