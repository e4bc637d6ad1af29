"""What the demo model does with a request: a pure function from a request to a `Direction`.

It is a small rule-based actor, not a language model. In order: explicit directives in the last user message, a
summary when it is asked for one, a forced tool, calls asked for in plain words and not made yet, a report of what
the tools returned, and otherwise conversation. `demo` performs the plan; the model server in `testing` performs
the same plans on the vendors' wires.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from holdfast.core.messages import (
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
from holdfast.providers.demo_directives import Direction, directions, without_directives
from holdfast.providers.demo_words import WantedCall, plausible_call, wanted_calls

GREETINGS = ("hi", "hello", "hey", "help", "good morning", "good evening", "who are you", "what can you do")
QUOTE_CHARS = 400


@dataclass(frozen=True, slots=True)
class Scene:
    """The part of a context that the demo model looks at: the last user message and what came after it."""

    said: str
    images: int
    made: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]
    steps_done: int
    directed: bool = False


# Terminal clients send notes to the model along with the user's words.
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


def plan(request: ModelRequest) -> Direction:
    """What to do now."""
    if _asks_for_summary(request):
        return Direction(think="I am asked for a summary.", say=summary_of(request))
    scene = scene_of(request)
    told = directions(scene.said)
    if told:
        scene = replace(scene, said=without_directives(scene.said), directed=True)
    if told and scene.steps_done < len(told):
        return _allowed(request, _finished(request, scene, told[scene.steps_done]))
    return _allowed(request, _improvised(request, scene, quiet=bool(told) and told[-1].quiet))


def scene_of(request: ModelRequest) -> Scene:
    said, images = "", 0
    made: list[ToolCall] = []
    results: list[ToolResult] = []
    steps_done = 0
    for message in request.messages:
        match message.body:
            case UserBody(parts=parts):
                said = _REMINDER.sub("", plain_text(tuple(part for part in parts if not isinstance(part, Image))))
                images = sum(isinstance(part, Image) for part in parts)
                made, results, steps_done = [], [], 0
            case AssistantBody(calls=calls) | ApprovalRequestBody(calls=calls):
                made.extend(calls)
            case ToolReturnsBody(results=returned):
                results.extend(returned)
                steps_done += 1
            case _:
                pass
    return Scene(said, images, tuple(made), tuple(results), steps_done)


def _finished(request: ModelRequest, scene: Scene, told: Direction) -> Direction:
    """A direction with the parts that need the context filled in."""
    if told.summarise:
        return replace(told, say=summary_of(request))
    if told.silent or told.fail or told.say or told.calls or told.think is not None:
        return told if told.think is not None or told.quiet or told.silent else replace(told, think=_thought(scene))
    return replace(_improvised(request, scene, quiet=told.quiet), finish=told.finish, delay_ms=told.delay_ms)


def _improvised(request: ModelRequest, scene: Scene, *, quiet: bool) -> Direction:
    think = None if quiet else _thought(scene)
    match request.tool_choice:
        case OneTool(name=name):
            return Direction(think=think, calls=_forced(request, scene, name))
        case AnyTool():
            return Direction(think=think, calls=_forced(request, scene, None))
        case "none":
            wanted: tuple[WantedCall, ...] = ()
        case _:
            wanted = _not_made_yet(wanted_calls(scene.said, request.tools), scene.made)
    if wanted:
        return Direction(think=think, calls=wanted)
    return Direction(think=think, say=_report(scene) if scene.results else _conversation(scene, request.tools))


def _forced(request: ModelRequest, scene: Scene, name: str | None) -> tuple[WantedCall, ...]:
    """Calls the caller insists on: those asked for in words if they fit, otherwise a plausible one."""
    allowed = [tool for tool in request.tools if name in (None, tool.name)]
    if not allowed:
        return (WantedCall(name, {}),) if name else ()
    asked = _not_made_yet(wanted_calls(scene.said, tuple(allowed)), scene.made)
    return asked or (plausible_call(allowed[0], scene.said),)


def _not_made_yet(wanted: tuple[WantedCall, ...], made: tuple[ToolCall, ...]) -> tuple[WantedCall, ...]:
    """By name only, because a human may have edited the arguments."""
    done = [call.name for call in made]
    left: list[WantedCall] = []
    for call in wanted:
        if call.name in done:
            done.remove(call.name)
        else:
            left.append(call)
    return tuple(left)


def _allowed(request: ModelRequest, told: Direction) -> Direction:
    if request.settings.parallel_tool_calls or len(told.calls) < 2:
        return told
    return replace(told, calls=told.calls[:1])


def _thought(scene: Scene) -> str:
    if scene.results:
        return "The tools have answered, so I can report."
    if scene.said.strip():
        return f"The user says: {_short(scene.said, 80)}"
    return "I follow the directions." if scene.directed else "The user says nothing."


def _report(scene: Scene) -> str:
    """What came of the calls, in the tools' own words; a denial is quoted as what it is."""
    names = {call.id: call.name for call in scene.made}
    lines = []
    for result in scene.results:
        name = result.name or names.get(result.call_id, "the tool")
        verb = "returned" if result.status == "success" else "was not successful"
        lines.append(f"{name} {verb}: {_short(plain_text(result.content), QUOTE_CHARS)}")
    return "\n".join(lines)


def _conversation(scene: Scene, tools: tuple[ToolSpec, ...]) -> str:
    said = scene.said.strip()
    low = said.lower().rstrip("!?. ")
    if low in GREETINGS or any(low.startswith((f"{word} ", f"{word},")) for word in GREETINGS):
        return _greeting(tools)
    if scene.images:
        said = f"{said} (with {scene.images} image{'s' if scene.images > 1 else ''})".strip()
    if low.startswith("thank"):
        return "You are welcome. Is there anything else I can do?"
    if not said:
        return "I am listening."
    return f'You said: "{_short(said, QUOTE_CHARS)}" I have noted it. What should we do next?'


def _greeting(tools: tuple[ToolSpec, ...]) -> str:
    hello = "Hello! I am rehearsal, the built-in demo model: I follow simple rules and need no key."
    if not tools:
        return f"{hello} Say something, or write /say, /call or /tokens to direct me."
    names = ", ".join(tool.name for tool in tools[:10])
    return f"{hello} I can call these tools: {names}. Try: call {tools[0].name} with 'something'."


def _asks_for_summary(request: ModelRequest) -> bool:
    """The loop's compaction asks with a system prompt of its own and no tools; an agent's prompt may use the word."""
    first = request.messages[0].body if request.messages else None
    return not request.tools and isinstance(first, SystemBody) and "summar" in first.text.lower()


def summary_of(request: ModelRequest) -> str:
    """A short true account of the conversation: who said what, first and last, and which tools were used."""
    said: list[str] = []
    tools: dict[str, None] = {}
    for message in request.messages:
        match message.body:
            case UserBody(parts=parts) if text := plain_text(parts).strip():
                said.append(f'The user said: "{_short(text, 160)}"')
            case AssistantBody(parts=parts, calls=calls) | ApprovalRequestBody(parts=parts, calls=calls):
                tools.update(dict.fromkeys(call.name for call in calls))
                if text := plain_text(parts).strip():
                    said.append(f'The assistant said: "{_short(text, 160)}"')
            case SummaryBody(text=text):
                said.append(f"Earlier: {_short(text, 400)}")
            case _:
                pass
    kept = said if len(said) <= 8 else [*said[:3], f"({len(said) - 7} messages left out)", *said[-4:]]
    used = f"Tools used: {', '.join(tools)}." if tools else "No tools were used."
    return "\n".join(["Summary of the conversation so far.", *kept, used])


def _short(text: str, chars: int) -> str:
    text = text.strip()
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
