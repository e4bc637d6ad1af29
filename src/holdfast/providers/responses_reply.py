"""An OpenAI Responses stream, event by event, into deltas and a whole reply.

The stream is a list of items (reasoning, messages, calls), each added, filled by deltas and done, inside one response
whose last word is `completed`, `incomplete` or `failed`. Compatible servers leave some of it out, so whatever an item
did not say in deltas is taken from its `done`, and whatever came in neither from the end. Failures come as
`response.failed` or as `error`, both with HTTP 200.
https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.model import (
    CallDelta,
    Delta,
    FinishReason,
    HiddenReasoningDelta,
    ReasoningDelta,
    Reply,
    TextDelta,
    Usage,
)
from holdfast.providers.failures import from_event, read_event, unfinished
from holdfast.providers.gathering import Gathered, GatheredCall
from holdfast.providers.responses_request import ORIGIN
from holdfast.providers.sse import Event

BETWEEN_SUMMARIES = "\n\n"


class _Item:
    """An output item: its call if it is one, and whether any of it came in deltas."""

    __slots__ = ("call", "done", "told")

    def __init__(self) -> None:
        self.call: GatheredCall | None = None
        self.told = False
        self.done = False


class ResponsesDecoder:
    """Implements `calling.Decoder` for one reply."""

    def __init__(self, vendor: str) -> None:
        self.finished = False
        self._vendor = vendor
        self._gathered = Gathered()
        self._items: dict[int, _Item] = {}
        self._finish: FinishReason = "stop"
        self._usage = Usage()

    def feed(self, event: Event) -> Sequence[Delta]:
        if event.data == b"[DONE]":
            return ()
        said = read_event(self._vendor, event.data)
        match said.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                return self._text(said)
            case "response.function_call_arguments.delta":
                return self._arguments(said["output_index"], said["delta"])
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._thought(said["output_index"], said["delta"])
            case "response.reasoning_summary_part.added" if said.get("summary_index"):
                return self._thought(said["output_index"], BETWEEN_SUMMARIES)
            case "response.output_item.added":
                return self._added(said["output_index"], said["item"])
            case "response.output_item.done":
                return self._done(said["output_index"], said["item"])
            case "response.completed" | "response.incomplete":
                return self._end(said["response"])
            case "response.failed" | "response.cancelled":
                error = said["response"].get("error")
                raise from_event(self._vendor, error or {"message": f"The model ended with {said['type']}."})
            case "error":
                raise from_event(self._vendor, said.get("error") or said)
            case _:  # created, in_progress, content_part.added, …_text.done, and whatever the vendor adds next
                return ()

    def reply(self) -> Reply:
        if not self.finished:
            raise unfinished(self._vendor)
        finish = self._finish
        if finish == "stop" and self._gathered.calls:
            finish = "tool_calls"
        return Reply(self._gathered.parts(), self._gathered.tool_calls(), finish, self._usage)

    def _item(self, index: int) -> _Item:
        return self._items.setdefault(index, _Item())

    def _text(self, said: dict[str, Any]) -> Sequence[Delta]:
        self._item(said["output_index"]).told = True
        return (self._gathered.add(TextDelta(said["delta"])),)

    def _thought(self, index: int, text: str) -> Sequence[Delta]:
        self._item(index).told = True
        return (self._gathered.add(ReasoningDelta(text)),)

    def _arguments(self, index: int, text: str) -> Sequence[Delta]:
        item = self._item(index)
        if item.call is None or not text:
            return ()
        item.told = True
        return (self._gathered.add(CallDelta(item.call.id, arguments=text)),)

    def _added(self, index: int, item: dict[str, Any]) -> Sequence[Delta]:
        if item["type"] in ("message", "reasoning"):
            self._gathered.new_part()
        elif item["type"] == "function_call" and self._item(index).call is None:
            call = self._item(index).call = GatheredCall(item["call_id"], item["name"])
            return (self._gathered.begin(call),)
        return ()

    def _done(self, index: int, item: dict[str, Any]) -> Sequence[Delta]:
        known = self._item(index)
        if known.done:
            return ()
        known.done = True
        match item["type"]:
            case "reasoning":
                return self._reasoned(known, item)
            case "message" if not known.told:
                texts = [part.get("text") or part.get("refusal") for part in item.get("content") or ()]
                return [self._gathered.add(TextDelta(text)) for text in texts if text]
            case "function_call":
                begun = self._added(index, item)
                return [*begun, *(() if known.told else self._arguments(index, item.get("arguments") or ""))]
            case _:
                return ()

    def _reasoned(self, known: _Item, item: dict[str, Any]) -> Sequence[Delta]:
        """The seal on what was shown, or all there is when nothing was."""
        out: list[Delta] = []
        if not known.told:
            shown = [*(item.get("summary") or ()), *(item.get("content") or ())]
            if text := BETWEEN_SUMMARIES.join(part["text"] for part in shown):
                out.append(self._gathered.add(ReasoningDelta(text)))
                known.told = True
        if sealed := item.get("encrypted_content"):
            seal: ReasoningDelta | HiddenReasoningDelta
            if known.told:
                seal = self._gathered.add(ReasoningDelta("", sealed, ORIGIN, item.get("id")))
            else:
                seal = self._gathered.add(HiddenReasoningDelta(sealed, ORIGIN, item.get("id")))
            out.append(seal)
        return out

    def _end(self, response: dict[str, Any]) -> Sequence[Delta]:
        self.finished = True
        out: list[Delta] = []
        for index, item in enumerate(response.get("output") or ()):
            out.extend(self._done(index, item))
        if usage := response.get("usage"):
            self._usage = usage_of(usage)
        if response.get("status") == "incomplete":
            reason = (response.get("incomplete_details") or {}).get("reason")
            self._finish = "content_filter" if reason == "content_filter" else "length"
        out.extend(self._gathered.close_calls())
        return out


def usage_of(said: dict[str, Any]) -> Usage:
    return Usage(
        prompt_tokens=said.get("input_tokens") or 0,
        completion_tokens=said.get("output_tokens") or 0,
        cached_input_tokens=(said.get("input_tokens_details") or {}).get("cached_tokens"),
        reasoning_tokens=(said.get("output_tokens_details") or {}).get("reasoning_tokens"),
    )
