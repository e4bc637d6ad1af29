"""The calls of a step: which start when, what becomes of their results, and when the model is asked again.

Part of the loop (`core.loop` calls it), kept apart because it is one thought: bring every call of the step in hand
to a result, then go on. Like the loop it is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.core import limits
from holdfast.core.answers import CHANGED_TOOL, LOST
from holdfast.core.gate import Verdict, judge_call
from holdfast.core.messages import Draft, Text, ToolCall, ToolResult, ToolReturnsBody, plain_text
from holdfast.core.rules import is_terminal, must_call_a_tool, offered, prefilled
from holdfast.core.state import Call, CallModel, Decision, Loadout, ModelReplied, Ruling, RunTools, State


def ask_model(state: State, messages: Sequence[Draft] = ()) -> Decision:
    """Write these messages and ask the model, with the tools the rules allow now."""
    loadout = state.loadout
    available = tuple(loadout.tools)
    names = offered(loadout.rules, available, state.called, state.last_result)
    effect = CallModel(names, forced=bool(names) and must_call_a_tool(loadout.rules, available, state.called))
    return Decision(replace(state, calls=(), follow_ups=()), tuple(messages), effects=(effect,))


def through_the_gate(
    loadout: Loadout, asked: Sequence[ToolCall], happened: ModelReplied
) -> tuple[tuple[Call, ...], tuple[Ruling, ...]]:
    """Each call of a reply as the gate lets it through: to run, to wait for a human, or denied by a policy."""
    calls: list[Call] = []
    rulings: list[Ruling] = []
    for position, tool_call in enumerate(asked):
        verdict = judge_call(
            tool_call,
            rules=loadout.rules,
            client_names=loadout.client_names,
            policies=loadout.policies,
            allowances=loadout.allowances,
        )
        call = _admitted(loadout, Call(tool_call, happened.step_id, position, "allowed"), verdict, happened.request_id)
        calls.append(call)
        if verdict.by is not None and verdict.way != "ask":
            rulings.append(Ruling(call, "allowed" if verdict.way == "run" else "refused", by=verdict.by))
    return tuple(calls), tuple(rulings)


def _admitted(loadout: Loadout, call: Call, verdict: Verdict, request_id: str) -> Call:
    hand = loadout.tools.get(call.call.name)
    call = replace(call, client_side=verdict.client_side, notes=verdict.shadows, digest=hand.digest if hand else "")
    match verdict.way:
        case "run":
            return call
        case "ask":
            expiry = (hand.expiry if hand else None) or loadout.expiry
            return replace(call, status="awaiting", request_id=request_id, expiry=expiry)
        case "deny":
            text = f"Error: request to call tool denied by {verdict.by}."
            return replace(call, status="denied", result=ToolResult(call.call.id, "error", text, name=call.call.name))


def go_on(state: State, before: Sequence[Draft] = (), touched: Sequence[Call] = ()) -> Decision:
    """Start what can start now; when nothing is left to run, return the results and ask the model."""
    if any(call.status == "started" for call in state.calls):
        return Decision(state, tuple(before), tuple(touched))
    batch = _next_batch(state)
    if not batch:
        return _returned(state, before, touched)
    refused = {call.call.id: text for call in batch if (text := _refusal(state, call)) is not None}
    moved = tuple(
        _refused(call, refused[call.call.id]) if call.call.id in refused else _started(call) for call in batch
    )
    for call in moved:
        state = state.with_call(call)
    changed = _latest(touched, moved)
    starting = tuple(call for call in moved if call.status == "started")
    if not starting:
        return go_on(state, before, changed)
    filled = {call.call.id: prefilled(state.loadout.rules, state.called, call.call.name) for call in starting}
    return Decision(state, tuple(before), changed, (RunTools(starting, filled),))


def _next_batch(state: State) -> tuple[Call, ...]:
    """Every allowed call whose tool may run beside others; else the first allowed one, alone."""
    ready = tuple(call for call in state.calls if call.status == "allowed")
    together = tuple(call for call in ready if _may_run_beside(state.loadout, call))
    return together or ready[:1]


def _may_run_beside(loadout: Loadout, call: Call) -> bool:
    hand = loadout.tools.get(call.call.name)
    return hand is not None and hand.parallel


def _refusal(state: State, call: Call) -> str | None:
    """Why this call may not run, in words for the model; None if it may. Asked also after an approval."""
    loadout, name = state.loadout, call.call.name
    if name not in loadout.tools:
        if call.client_side:
            return f"[ToolConstraintError] {name} runs on the client; it has to send the result itself."
        return f"[ToolConstraintError] Cannot call {name}: there is no such tool. Tools are: {sorted(loadout.tools)}"
    if call.request_id is not None and call.digest and loadout.tools[name].digest != call.digest:
        return CHANGED_TOOL.format(name=name)  # approved, then left behind by a crash, and changed since
    names = offered(loadout.rules, tuple(loadout.tools), state.called, state.last_result)
    if name not in names:
        return f"[ToolConstraintError] Cannot call {name}, valid tools to call now: {list(names)}"
    return None


def _refused(call: Call, text: str) -> Call:
    return replace(call, status="settled", result=ToolResult(call.call.id, "error", text, name=call.call.name))


def _started(call: Call) -> Call:
    return replace(call, status="started")


def _latest(touched: Sequence[Call], moved: Sequence[Call]) -> tuple[Call, ...]:
    """Each changed call once, as it is now."""
    now = {call.call.id: call for call in (*touched, *moved)}
    return tuple(now.values())


def _returned(state: State, before: Sequence[Draft], touched: Sequence[Call]) -> Decision:
    """All settled: one message with every result, then the model, unless a terminal tool ran."""
    ran = tuple(call for call in state.calls if call.executed)
    names = tuple(call.call.name for call in ran)
    last = plain_text(ran[-1].result.content) if ran and ran[-1].result else state.last_result
    drafts = (*before, returns_of(state.calls), *state.follow_ups)
    after = replace(state, calls=(), follow_ups=(), called=state.called + names, last_result=last)
    after = limits.came_round(after, state.calls)
    if any(is_terminal(state.loadout.rules, name) for name in names):
        return Decision(after, drafts, tuple(touched), stop="tool_rule")
    asked = ask_model(after, drafts)
    return replace(asked, calls=tuple(touched))


def returns_of(calls: Sequence[Call]) -> Draft:
    """The step's one message of results, in the contract's order: given by the client, denied, executed."""
    ordered = sorted(calls, key=lambda call: (_rank(call), call.position))
    results = tuple(call.result for call in ordered if call.result is not None)
    ran = next((call.call.name for call in ordered if call.executed), None)
    return Draft(ToolReturnsBody(results), step_id=calls[0].step_id, name=ran)


def _rank(call: Call) -> int:
    if call.status == "denied":
        return 1
    given = call.request_id is not None and call.status == "settled" and not call.executed
    return 0 if given else 2


def found_again(loadout: Loadout, call: Call, request_id: str) -> Call:
    """A started call whose starter is gone, by its tool's policy: run again, ask a human, or tell the model."""
    if call.status != "started":
        return call
    hand = loadout.tools.get(call.call.name)
    match hand.on_unknown if hand else "tell":
        case "retry":
            return replace(call, status="allowed")
        case "ask":
            expiry = (hand.expiry if hand else None) or loadout.expiry
            return replace(call, status="unknown", request_id=request_id, expiry=expiry)
        case _:
            return _refused(call, LOST)


def telling_of_the_edit(call: Call, result: ToolResult) -> ToolResult:
    """The model is told when a human changed what it asked for, or it would draw the wrong conclusion."""
    if call.edited is None:
        return result
    note = f"[A person changed the arguments before approving. This call ran with: {call.edited}]"
    content = result.content
    if isinstance(content, str):
        return replace(result, content=f"{note}\n{content}")
    return replace(result, content=(Text(note), *content))
