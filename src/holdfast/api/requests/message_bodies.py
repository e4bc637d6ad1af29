"""The body of a message request: messages, approvals, tool returns and options; and its conversion to a `RunRequest`.

Pydantic validates the shapes (a mistake is a 422); `run_request` converts them for the engine. The first item decides
what kind of request it is: if it is an approval or a tool return, later messages are follow-ups.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import uuid4

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from holdfast.api.http.limits import MAX_ANSWERS, MAX_MESSAGES, MAX_PARTS, MAX_TOOLS, Lines, Names, at_most
from holdfast.api.http.parameters import MAX_INT32
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.requests.context_bodies import BudgetIn, CompactionIn
from holdfast.core.conversation.messages import (
    Answer,
    Approval,
    AssistantBody,
    Body,
    Draft,
    Image,
    Part,
    Reasoning,
    SystemBody,
    Text,
    ToolResult,
    UserBody,
    plain_text,
)
from holdfast.core.errors import Invalid
from holdfast.core.model import ToolSpec
from holdfast.core.run_request import DEFAULT_MAX_STEPS, RunRequest


class Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore")


class PartIn(Lenient):
    """A content part: text, an image or reasoning. Any other type is a 400."""

    type: str
    text: str | None = None
    source: dict[str, Any] | None = None
    reasoning: str | None = None
    signature: str | None = None

    def part(self) -> Part:
        match self.type:
            case "image":
                return _image(self.source or {})
            case "reasoning":
                return Reasoning(self.reasoning or "", self.signature)
            case "text":
                return Text(self.text or "")
            case other:
                raise Invalid(f"A content part of type {other!r} cannot be sent; use text or image.")


Content = str | Annotated[list[PartIn], at_most(MAX_PARTS)]


def _image(source: dict[str, Any]) -> Image:
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return Image(url=source["url"], detail=source.get("detail"))
    if isinstance(source.get("data"), str):
        return Image(
            data=source["data"], media_type=source.get("media_type") or "image/png", detail=source.get("detail")
        )
    raise Invalid("An image needs a source with a url, or with base64 data and its media_type.")


def _parts(content: Content) -> tuple[Part, ...]:
    return (Text(content),) if isinstance(content, str) else tuple(item.part() for item in content)


class MessageIn(Lenient):
    type: Literal["message"] | None = "message"
    role: Literal["user", "system", "assistant"]
    content: Content
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    group_id: str | None = None

    def draft(self) -> Draft:
        parts = _parts(self.content)
        body: Body
        match self.role:
            case "user":
                body = UserBody(parts)
            case "assistant":
                body = AssistantBody(parts)
            case "system":
                body = SystemBody(plain_text(parts))
        return Draft(
            body,
            otid=self.otid or str(uuid4()),
            name=self.name,
            sender_id=self.sender_id,
            group_id=self.group_id,
        )


class ApprovalElement(Lenient):
    type: Literal["approval"]
    tool_call_id: str
    approve: bool
    reason: str | None = None
    arguments: dict[str, Any] | str | None = None  # Holdfast's own: run the call with these arguments instead

    def answer(self) -> Answer:
        return Approval(self.tool_call_id, self.approve, self.reason, arguments_text(self.arguments))


def arguments_text(given: dict[str, Any] | str | None) -> str | None:
    return orjson.dumps(given).decode() if isinstance(given, dict) else given


class ToolReturnElement(Lenient):
    type: Literal["tool"]
    tool_call_id: str
    tool_return: Content
    status: Literal["success", "error"]
    stdout: Lines | None = None
    stderr: Lines | None = None

    def answer(self) -> Answer:
        content: str | tuple[Text | Image, ...]
        if isinstance(self.tool_return, str):
            content = self.tool_return
        else:
            content = tuple(part for part in _parts(self.tool_return) if isinstance(part, (Text, Image)))
        return ToolResult(
            self.tool_call_id,
            self.status,
            content,
            stdout=None if self.stdout is None else tuple(self.stdout),
            stderr=None if self.stderr is None else tuple(self.stderr),
        )


Element = Annotated[ApprovalElement | ToolReturnElement, Field(discriminator="type")]


class ApprovalIn(Lenient):
    type: Literal["approval"] = "approval"
    approvals: Annotated[list[Element], at_most(MAX_ANSWERS)] | None = None
    approve: bool | None = None
    approval_request_id: str | None = None
    reason: str | None = None
    otid: str | None = None
    partial: bool = False  # Holdfast's own: the answers need not cover all waiting calls

    def answers(self) -> tuple[Answer, ...]:
        if self.approvals:
            return tuple(element.answer() for element in self.approvals)
        if self.approve is not None and self.approval_request_id:
            return (Approval(self.approval_request_id, self.approve, self.reason),)
        return ()


class ToolReturnIn(Lenient):
    type: Literal["tool_return"]
    tool_returns: Annotated[list[ToolReturnElement], at_most(MAX_ANSWERS)]
    otid: str | None = None

    def answers(self) -> tuple[Answer, ...]:
        return tuple(element.answer() for element in self.tool_returns)


def _kind(item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    if item.get("type"):
        return str(item["type"])
    return "approval" if "approve" in item or "approval_request_id" in item else "message"


ItemIn = Annotated[
    Annotated[MessageIn, Tag("message")]
    | Annotated[ApprovalIn, Tag("approval")]
    | Annotated[ToolReturnIn, Tag("tool_return")],
    Discriminator(_kind),
]


class ClientToolIn(Lenient):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None

    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description or "", self.parameters or {"type": "object", "properties": {}})


class SendIn(RequestBody):
    """The body of every route that sends messages to an agent."""

    messages: Annotated[list[ItemIn], at_most(MAX_MESSAGES)] | None = None
    input: Content | None = None
    max_steps: int = Field(DEFAULT_MAX_STEPS, ge=1, le=MAX_INT32)
    use_assistant_message: bool = True
    assistant_message_tool_name: str = "send_message"
    assistant_message_tool_kwarg: str = "message"
    include_return_message_types: Names | None = None
    client_tools: Annotated[list[ClientToolIn], at_most(MAX_TOOLS)] | None = None
    override_model: str | None = None
    override_system: str | None = Field(None, alias="system")
    include_compaction_messages: bool = False
    streaming: bool | None = None
    stream_tokens: bool = False
    include_pings: bool = True
    background: bool = False
    callback_url: str | None = None
    agent_id: str | None = None
    budget: BudgetIn | None = None  # Holdfast's own: the limits of this run
    compaction_settings: CompactionIn | None = None  # Holdfast's own: overrides the agent's
    when_busy: Literal["reject", "queue", "deny_and_continue", "interrupt"] = "reject"  # Holdfast's own
    on_disconnect: Literal["continue", "cancel"] = "continue"  # Holdfast's own; not stored with the run

    model_config = ConfigDict(extra="ignore", populate_by_name=True, protected_namespaces=())

    @model_validator(mode="after")
    def _one_input(self) -> SendIn:
        if (self.messages is None) == (self.input is None):
            raise ValueError("Exactly one of messages and input must be given")
        if self.messages is not None and not self.messages:
            raise ValueError("Messages must not be empty")
        return self

    def config(self) -> dict[str, Any]:
        return {
            "use_assistant_message": self.use_assistant_message,
            "assistant_message_tool_name": self.assistant_message_tool_name,
            "assistant_message_tool_kwarg": self.assistant_message_tool_kwarg,
            "include_return_message_types": self.include_return_message_types,
        }


SendBody = Annotated[SendIn, body_of(SendIn)]


def run_request(body: SendIn, run_type: str) -> RunRequest:
    """The request as a value for the engine."""
    items: list[Any] = list(body.messages or [MessageIn(role="user", content=body.input or "")])
    answers: tuple[Answer, ...] | None = None
    partial = False
    if not isinstance(items[0], MessageIn):
        answers = items[0].answers()
        partial = getattr(items[0], "partial", False)
        items = items[1:]
    types = body.include_return_message_types
    return RunRequest(
        messages=tuple(item.draft() for item in items if isinstance(item, MessageIn)),
        answers=answers,
        run_type=run_type,
        max_steps=body.max_steps,
        stream_tokens=body.stream_tokens,
        background=body.background,
        client_tools=tuple(tool.spec() for tool in body.client_tools or ()),
        override_model=body.override_model,
        override_system=body.override_system,
        include_types=None if types is None else tuple(types),
        include_compaction=body.include_compaction_messages,
        callback_url=body.callback_url,
        budget=body.budget or {},
        compaction=body.compaction_settings or {},
        partial=partial,
        when_busy=body.when_busy,
        config=body.config(),
    )
