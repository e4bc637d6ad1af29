"""Decides what the demo model replies: a pure function from a request to a `ReplyPlan`.

The demo model follows rules and is no language model. In order: a summary if the system prompt asks for one, directives
in the last user message, a forced tool, calls that the message asks for and that were not made yet, a report of what
the tools returned, and otherwise small talk. `demo_model` streams the plan; the model server in `testing` sends the
same plans over the vendors' APIs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.core.conversation.messages import (
    ApprovalRequestBody,
    AssistantBody,
    Image,
    SummaryBody,
    SystemBody,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
    plain_text,
)
from holdfast.core.model import AnyTool, ModelRequest, OneTool, ToolSpec
from holdfast.providers.demo.directives import ReplyPlan, parse_directives, without_directives
from holdfast.providers.demo.plain_words import WantedCall, plausible_call, wanted_calls

GREETINGS = ("hi", "hello", "hey", "help", "good morning", "good evening", "who are you", "what can you do")
QUOTE_CHARS = 400


@dataclass(frozen=True, slots=True)
class LatestTurn:
    """The part of a context that the demo model considers: the last user message and what came after it."""

    text: str
    images: int
    made: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]
    steps_done: int
    directed: bool = False


READ_CHARS = 100_000  # of a user message; the rest is ignored
_REMINDER_BEGINS, _REMINDER_ENDS = "<system-reminder>", "</system-reminder>"


def plan(request: ModelRequest) -> ReplyPlan:
    """The reply to this request."""
    if _asks_for_summary(request):
        return ReplyPlan(think="I am asked for a summary.", say=summary_of(request))
    turn = latest_turn_of(request)
    steps = parse_directives(turn.text)
    if steps:
        turn = replace(turn, text=without_directives(turn.text), directed=True)
    if steps and turn.steps_done < len(steps):
        return _limit_parallel(request, _filled_in(request, turn, steps[turn.steps_done]))
    return _limit_parallel(request, _default_reply(request, turn, quiet=bool(steps) and steps[-1].quiet))


def latest_turn_of(request: ModelRequest) -> LatestTurn:
    text, images = "", 0
    made: list[ToolCall] = []
    results: list[ToolResult] = []
    steps_done = 0
    for message in request.messages:
        match message.body:
            case UserBody(parts=parts):
                text = plain_text(tuple(part for part in parts if not isinstance(part, Image)))
                text = _without_reminders(text[:READ_CHARS])
                images = sum(isinstance(part, Image) for part in parts)
                made, results, steps_done = [], [], 0
            case AssistantBody(calls=calls) | ApprovalRequestBody(calls=calls):
                made.extend(calls)
            case ToolReturnsBody(results=returned):
                results.extend(returned)
                steps_done += 1
            case _:
                pass
    return LatestTurn(text, images, tuple(made), tuple(results), steps_done)


def _without_reminders(text: str) -> str:
    """The text without the notes to the model that terminal clients add to the user's message."""
    # Not a regular expression: it would search to the end of the text for each opening tag that has no closing tag.
    kept: list[str] = []
    read = 0
    while (begin := text.find(_REMINDER_BEGINS, read)) >= 0:
        end = text.find(_REMINDER_ENDS, begin)
        if end < 0:
            break
        kept.append(text[read:begin])
        read = end + len(_REMINDER_ENDS)
    return "".join([*kept, text[read:]])


def _filled_in(request: ModelRequest, turn: LatestTurn, reply: ReplyPlan) -> ReplyPlan:
    """A directed reply, with the parts that need the context filled in."""
    if reply.summarise:
        return replace(reply, say=summary_of(request))
    if reply.silent or reply.fail or reply.say or reply.calls or reply.think is not None:
        return (
            reply
            if reply.think is not None or reply.quiet or reply.silent
            else replace(reply, think=_reasoning_text(turn))
        )
    return replace(_default_reply(request, turn, quiet=reply.quiet), finish=reply.finish, delay_ms=reply.delay_ms)


def _default_reply(request: ModelRequest, turn: LatestTurn, *, quiet: bool) -> ReplyPlan:
    think = None if quiet else _reasoning_text(turn)
    match request.tool_choice:
        case OneTool(name=name):
            return ReplyPlan(think=think, calls=_forced(request, turn, name))
        case AnyTool():
            return ReplyPlan(think=think, calls=_forced(request, turn, None))
        case "none":
            wanted: tuple[WantedCall, ...] = ()
        case _:
            wanted = _not_made_yet(wanted_calls(turn.text, request.tools), turn.made)
    if wanted:
        return ReplyPlan(think=think, calls=wanted)
    return ReplyPlan(think=think, say=_report(turn) if turn.results else _conversation(turn, request.tools))


def _forced(request: ModelRequest, turn: LatestTurn, name: str | None) -> tuple[WantedCall, ...]:
    """Calls for a forced tool: those that the message asks for if they fit, otherwise a plausible one."""
    allowed = [tool for tool in request.tools if name in (None, tool.name)]
    if not allowed:
        return (WantedCall(name, {}),) if name else ()
    requested = _not_made_yet(wanted_calls(turn.text, tuple(allowed)), turn.made)
    return requested or (plausible_call(allowed[0], turn.text),)


def _not_made_yet(wanted: tuple[WantedCall, ...], made: tuple[ToolCall, ...]) -> tuple[WantedCall, ...]:
    """The calls left to make, compared by name only, because a person may have edited the arguments."""
    done = [call.name for call in made]
    left: list[WantedCall] = []
    for call in wanted:
        if call.name in done:
            done.remove(call.name)
        else:
            left.append(call)
    return tuple(left)


def _limit_parallel(request: ModelRequest, reply: ReplyPlan) -> ReplyPlan:
    if request.settings.parallel_tool_calls or len(reply.calls) < 2:
        return reply
    return replace(reply, calls=reply.calls[:1])


def _reasoning_text(turn: LatestTurn) -> str:
    if turn.results:
        return "The tools have answered, so I can report."
    if turn.text.strip():
        return f"The user says: {_short(turn.text, 80)}"
    return "I follow the directions." if turn.directed else "The user says nothing."


def _report(turn: LatestTurn) -> str:
    """The results of the calls, quoted; a denial is quoted like any other error."""
    names = {call.id: call.name for call in turn.made}
    lines = []
    for result in turn.results:
        name = result.name or names.get(result.call_id, "the tool")
        verb = "returned" if result.status == "success" else "was not successful"
        lines.append(f"{name} {verb}: {_short(plain_text(result.content), QUOTE_CHARS)}")
    return "\n".join(lines)


def _conversation(turn: LatestTurn, tools: tuple[ToolSpec, ...]) -> str:
    text = turn.text.strip()
    low = text.lower().rstrip("!?. ")
    if low in GREETINGS or any(low.startswith((f"{word} ", f"{word},")) for word in GREETINGS):
        return _greeting(tools)
    if turn.images:
        text = f"{text} (with {turn.images} image{'s' if turn.images > 1 else ''})".strip()
    if low.startswith("thank"):
        return "You are welcome. Is there anything else I can do?"
    if not text:
        return "I am listening."
    return f'You said: "{_short(text, QUOTE_CHARS)}" I have noted it. What should we do next?'


def _greeting(tools: tuple[ToolSpec, ...]) -> str:
    hello = "Hello! I am rehearsal, the built-in demo model: I follow simple rules and need no key."
    if not tools:
        return f"{hello} Say something, or write /say, /call or /tokens to direct me."
    names = ", ".join(tool.name for tool in tools[:10])
    return f"{hello} I can call these tools: {names}. Try: call {tools[0].name} with 'something'."


def _asks_for_summary(request: ModelRequest) -> bool:
    """Whether this is a compaction, which has no tools; an agent's own prompt may mention summaries too."""
    first = request.messages[0].body if request.messages else None
    return not request.tools and isinstance(first, SystemBody) and "summar" in first.text.lower()


def summary_of(request: ModelRequest) -> str:
    """A short summary of the conversation: its first and last messages, and which tools were used."""
    lines: list[str] = []
    tools: dict[str, None] = {}
    for message in request.messages:
        match message.body:
            case UserBody(parts=parts) if text := plain_text(parts).strip():
                lines.append(f'The user said: "{_short(text, 160)}"')
            case AssistantBody(parts=parts, calls=calls) | ApprovalRequestBody(parts=parts, calls=calls):
                tools.update(dict.fromkeys(call.name for call in calls))
                if text := plain_text(parts).strip():
                    lines.append(f'The assistant said: "{_short(text, 160)}"')
            case SummaryBody(text=text):
                lines.append(f"Earlier: {_short(text, 400)}")
            case _:
                pass
    kept = lines if len(lines) <= 8 else [*lines[:3], f"({len(lines) - 7} messages left out)", *lines[-4:]]
    used = f"Tools used: {', '.join(tools)}." if tools else "No tools were used."
    return "\n".join(["Summary of the conversation so far.", *kept, used])


def _short(text: str, chars: int) -> str:
    text = text.strip()
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
