"""`RunRequest`: what one message request asks for. It is stored with its run, so that another worker can take over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from holdfast.core.conversation.message_codec import decode, encode, known_to
from holdfast.core.conversation.messages import Answer, Draft
from holdfast.core.model import ToolSpec
from holdfast.core.state import DecisionsGiven, UserSpoke

DEFAULT_MAX_STEPS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One request to an agent.

    `answers` are decisions on waiting calls, `messages` are new messages of the user; together with answers the
    messages are follow-ups, which the model reads after the results. `keys` are the request's idempotency keys, and
    `body_digest` tells whether another request with the same key is a retry of this one. `otids` are keys by which the
    run can be found, but that do not make another request with them a retry: of several runs the newest is found.
    `waiter` is the process to which the client is connected, if the client waits for the end of the run.
    """

    messages: tuple[Draft, ...] = ()
    answers: tuple[Answer, ...] | None = None
    run_type: str = "send_message"
    max_steps: int = DEFAULT_MAX_STEPS
    stream_tokens: bool = False
    background: bool = False
    client_tools: tuple[ToolSpec, ...] = ()
    override_model: str | None = None
    override_system: str | None = None
    include_types: tuple[str, ...] | None = None
    include_compaction: bool = False
    callback_url: str | None = None
    budget: Mapping[str, Any] = field(default_factory=dict)
    compaction: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    when_busy: str = "reject"
    allow: Mapping[str, str | None] = field(default_factory=dict)  # tool -> digest of arguments, or None for any
    config: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    otids: tuple[str, ...] = ()
    body_digest: str = ""
    waiter: str | None = None

    def happened(self) -> UserSpoke | DecisionsGiven:
        if self.answers is None:
            return UserSpoke(self.messages)
        return DecisionsGiven(self.answers, self.messages, self.partial)

    def to_json(self) -> dict[str, Any]:
        return {field.name: _written(getattr(self, field.name)) for field in fields(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RunRequest:
        """Fields that an older version did not write get their defaults; fields of a newer one are left out."""
        return RunRequest(
            **{name: _READ.get(name, _plain)(value) for name, value in known_to(RunRequest, data).items()}
        )


def _written(value: Any) -> Any:
    """A field's value as JSON. Most are JSON already; tuples hold messages, answers, tool specs or plain texts."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    if isinstance(value, ToolSpec):
        return {"name": value.name, "description": value.description, "parameters": dict(value.parameters)}
    return dict(value) if isinstance(value, Mapping) else encode(value)


def _plain(value: Any) -> Any:
    return value


def _texts(value: Any) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


# Decoders of the fields whose JSON form differs from their value here.
_READ: Mapping[str, Callable[[Any], Any]] = {
    "messages": decode,
    "answers": decode,
    "client_tools": lambda tools: tuple(ToolSpec(**known_to(ToolSpec, tool)) for tool in tools),
    "include_types": _texts,
    "keys": lambda keys: tuple(keys or ()),
    "otids": lambda otids: tuple(otids or ()),
}
