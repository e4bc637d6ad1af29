"""What one request asks for, as a value that is stored with its run and read back by whoever takes the run over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.codec import decode, encode, known_to
from holdfast.core.messages import Answer, Draft
from holdfast.core.model import ToolSpec
from holdfast.core.state import DecisionsGiven, UserSpoke

DEFAULT_MAX_STEPS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """`answers` are decisions on waiting calls and `messages` what the user says; with answers, the messages are
    follow-ups that the model reads after the results. `keys` are the names that the sender gave the request, and
    `body_digest` tells whether a request with such a name is the same request again. `waiter` is the process at which
    somebody waits for the end of the run, if anybody does."""

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
    body_digest: str = ""
    waiter: str | None = None

    def happened(self) -> UserSpoke | DecisionsGiven:
        if self.answers is None:
            return UserSpoke(self.messages)
        return DecisionsGiven(self.answers, self.messages, self.partial)

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": encode(self.messages),
            "answers": None if self.answers is None else encode(self.answers),
            "run_type": self.run_type,
            "max_steps": self.max_steps,
            "stream_tokens": self.stream_tokens,
            "background": self.background,
            "client_tools": [
                {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
                for tool in self.client_tools
            ],
            "override_model": self.override_model,
            "override_system": self.override_system,
            "include_types": None if self.include_types is None else list(self.include_types),
            "include_compaction": self.include_compaction,
            "callback_url": self.callback_url,
            "budget": dict(self.budget),
            "compaction": dict(self.compaction),
            "partial": self.partial,
            "when_busy": self.when_busy,
            "allow": dict(self.allow),
            "config": dict(self.config),
            "keys": list(self.keys),
            "body_digest": self.body_digest,
            "waiter": self.waiter,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RunRequest:
        plain = {key: data[key] for key in _PLAIN if key in data}
        types = data.get("include_types")
        return RunRequest(
            messages=decode(data["messages"]),
            answers=None if data["answers"] is None else decode(data["answers"]),
            client_tools=tuple(ToolSpec(**known_to(ToolSpec, tool)) for tool in data["client_tools"]),
            include_types=None if types is None else tuple(types),
            keys=tuple(data.get("keys") or ()),
            **plain,
        )


_PLAIN = (
    "run_type",
    "max_steps",
    "stream_tokens",
    "background",
    "override_model",
    "override_system",
    "include_compaction",
    "callback_url",
    "budget",
    "compaction",
    "partial",
    "when_busy",
    "allow",
    "config",
    "body_digest",
    "waiter",
)
