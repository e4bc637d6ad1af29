"""Brings the tool calls of one step to their results: judges, starts, refuses and recovers them, then calls the model.

`core.loop` uses it for everything about calls, and like the loop it is pure. A call of a reply goes through these
steps:

1. `with_final_arguments` makes the arguments what the tool gets: filled in by tool rules, without empty ones.
2. `judge_calls` asks the approval gate: run, wait for a person, or denied.
3. `proceed` starts the allowed calls, in batches. Before a call starts, the rules are checked again.
4. When no call is left to run, `proceed` stores all results as one message and calls the model.

`recover_call` decides about a call whose process is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.core import budget, run_limits
from holdfast.core.approvals.answers import OUTCOME_UNKNOWN, changed_since_asked
from holdfast.core.approvals.approval_gate import Verdict, has_policy, judge_call
from holdfast.core.approvals.binding import void_text
from holdfast.core.conversation.messages import (
    Draft,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
    plain_text,
)
from holdfast.core.conversation.repeated_messages import NUDGE
from holdfast.core.errors import TellTheModel
from holdfast.core.state import (
    AuditEntry,
    Call,
    CallModel,
    Decision,
    ModelReplied,
    OnUnknown,
    RunConfig,
    RunTools,
    State,
)
from holdfast.core.tools.call_arguments import as_the_tool_gets_them, check_filled, merge_arguments
from holdfast.core.tools.tool_rules import is_terminal, must_call_a_tool, needs_approval, offered, still_required


def ask_model(state: State, messages: Sequence[Draft] = ()) -> Decision:
    """Store these messages and call the model, with the tools that the rules allow now."""
    config = state.config
    available = tuple(config.tools)
    names = offered(config.rules, available, state.called, state.last_result)
    effect = CallModel(names, forced=bool(names) and must_call_a_tool(config.rules, available, state.called))
    return Decision(replace(state, calls=(), follow_ups=()), tuple(messages), effects=(effect,))


def with_final_arguments(state: State, asked: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls of a reply with the arguments that their tools get: with those that a tool rule fills in, and without
    what is left out before a tool runs. Only this function changes arguments, before a call is judged, shown or stored;
    after it, only a person can edit them. A client's tool gets what the model wrote."""
    return tuple(call if call.name in state.config.client_names else _final(state, call) for call in asked)


def _final(state: State, call: ToolCall) -> ToolCall:
    filled, tool = state.filled_in(call.name), state.config.tools.get(call.name)
    text = merge_arguments(call.arguments, filled) if filled else call.arguments
    if tool is not None:
        text = as_the_tool_gets_them(text, tool.spec.parameters)
    return call if text == call.arguments else replace(call, arguments=text)


def fault_of_filled_in(state: State, asked: Sequence[ToolCall]) -> str | None:
    """What is wrong with the arguments that a tool rule fills in; the model cannot correct them."""
    for call in asked:
        tool, filled = state.config.tools.get(call.name), state.filled_in(call.name)
        if tool is not None and filled:
            try:
                check_filled(filled, tool.spec.parameters)
            except TellTheModel as error:
                return f"Invalid prefilled tool arguments from tool rules: {error}"
    return None


def refuse_all(state: State, said: Draft, asked: Sequence[ToolCall], text: str) -> Decision:
    """Run no call of this reply and stop: no other reply would be better."""
    step_id = said.step_id or ""
    calls = tuple(_refused(Call(call, step_id, place, "allowed"), text) for place, call in enumerate(asked))
    return Decision(state, (said, returns_of(calls)), calls, stop="invalid_tool_call")


def judge_calls(
    config: RunConfig, asked: Sequence[ToolCall], happened: ModelReplied
) -> tuple[tuple[Call, ...], tuple[AuditEntry, ...]]:
    """Each call of a reply after the approval gate: allowed, waiting for a person, or denied by a policy."""
    calls: list[Call] = []
    audit_entries: list[AuditEntry] = []
    for position, tool_call in enumerate(asked):
        verdict = judge_call(
            tool_call,
            rules=config.rules,
            client_names=config.client_names,
            policies=config.policies,
            allowances=config.allowances,
            tool_digest=config.tools[tool_call.name].digest if tool_call.name in config.tools else "",
        )
        call = _after_verdict(
            config, Call(tool_call, happened.step_id, position, "allowed"), verdict, happened.request_id
        )
        calls.append(call)
        if verdict.by is not None and verdict.action != "ask":
            audit_entries.append(AuditEntry(call, "allowed" if verdict.action == "run" else "refused", by=verdict.by))
    return tuple(calls), tuple(audit_entries)


def _after_verdict(config: RunConfig, call: Call, verdict: Verdict, request_id: str) -> Call:
    tool = None if verdict.client_side else config.tools.get(call.call.name)
    call = replace(call, client_side=verdict.client_side, notes=verdict.shadows, digest=tool.digest if tool else "")
    match verdict.action:
        case "run":
            return call
        case "ask":
            expiry = (tool.expiry if tool else None) or config.expiry
            return replace(call, status="awaiting", request_id=request_id, expiry=expiry)
        case "deny":
            text = f"Error: request to call tool denied by {verdict.by}."
            return replace(call, status="denied", result=ToolResult(call.call.id, "error", text, name=call.call.name))


def proceed(state: State, before: Sequence[Draft] = (), touched: Sequence[Call] = ()) -> Decision:
    """Start the calls that can start now. When no call is left to run, return the results and call the model.

    `before` are messages to store first; `touched` are calls that the caller has changed and that have to be written.
    """
    if any(call.status == "started" for call in state.calls):
        return Decision(state, tuple(before), tuple(touched))
    batch = _next_batch(state)
    if not batch:
        return _return_results(state, before, touched)
    refused = {call.call.id: text for call in batch if (text := _refusal(state, call)) is not None}
    moved = tuple(
        _refused(call, refused[call.call.id]) if call.call.id in refused else _started(call) for call in batch
    )
    for call in moved:
        state = state.with_call(call)
    changed = _newest_by_id(touched, moved)
    starting = tuple(call for call in moved if call.status == "started")
    if not starting:  # all were refused; the next batch may start
        return proceed(state, before, changed)
    return Decision(state, tuple(before), changed, (RunTools(starting),))


def _next_batch(state: State) -> tuple[Call, ...]:
    """All allowed calls whose tools allow parallel execution; if there are none, the first allowed call alone."""
    ready = tuple(call for call in state.calls if call.status == "allowed")
    together = tuple(call for call in ready if _is_parallel(state.config, call))
    return together or ready[:1]


def _is_parallel(config: RunConfig, call: Call) -> bool:
    tool = config.tools.get(call.call.name)
    return tool is not None and tool.parallel


def _refusal(state: State, call: Call) -> str | None:
    """Why this call may not run, as a text for the model; None if it may run. Approved calls are checked too."""
    config, name = state.config, call.call.name
    if call.client_side:
        return f"[ToolConstraintError] {name} runs on the client; it has to send the result itself."
    if name not in config.tools:
        return f"[ToolConstraintError] Cannot call {name}: there is no such tool. Tools are: {sorted(config.tools)}"
    if call.request_id is not None and (changed := changed_since_asked(config, call)) is not None:
        # The call was approved, a crash kept it from starting, and the tool or its secrets have changed since.
        return void_text(changed, name)
    names = offered(config.rules, tuple(config.tools), state.called, state.last_result)
    if name not in names:
        return f"[ToolConstraintError] Cannot call {name}, valid tools to call now: {list(names)}"
    return None


def _refused(call: Call, text: str) -> Call:
    return replace(call, status="settled", result=ToolResult(call.call.id, "error", text, name=call.call.name))


def _started(call: Call) -> Call:
    return replace(call, status="started")


def _newest_by_id(touched: Sequence[Call], moved: Sequence[Call]) -> tuple[Call, ...]:
    """Each changed call once, in its newest form."""
    newest = {call.call.id: call for call in (*touched, *moved)}
    return tuple(newest.values())


def _return_results(state: State, before: Sequence[Draft], touched: Sequence[Call]) -> Decision:
    """All calls are settled: store one message with every result and call the model, unless a terminal tool ran and no
    tool is required before the turn may end."""
    ran = tuple(call for call in state.calls if call.executed)
    names = tuple(call.call.name for call in ran)
    last = plain_text(ran[-1].result.content) if ran and ran[-1].result else state.last_result
    drafts = (*before, returns_of(state.calls), *state.follow_ups)
    after = replace(state, calls=(), follow_ups=(), called=state.called + names, last_result=last)
    after = run_limits.count_repeats(after, state.calls)
    if not any(is_terminal(state.config.rules, name) for name in names):
        return replace(ask_model(after, drafts), calls=tuple(touched))
    if still_required_of(after):
        return replace(ask_for_required(after, drafts, state.calls[0].step_id), calls=tuple(touched))
    return Decision(after, drafts, tuple(touched), stop="tool_rule")


def still_required_of(state: State) -> tuple[str, ...]:
    """The tools that the model has to call before this turn may end."""
    return still_required(state.config.rules, tuple(state.config.tools), state.called, state.last_result)


def ask_for_required(state: State, messages: Sequence[Draft], step_id: str) -> Decision:
    """Tell the model which tools it has to call before the turn may end. Out of steps it is told nothing: `run_limits`
    then ends the run with `max_steps`."""
    if budget.steps_spent(state.steps, state.config.max_steps) is not None:
        return ask_model(state, messages)
    names = ", ".join(still_required_of(state))
    text = f"{NUDGE}ToolRuleViolated: You must call {names} at least once to exit the loop."
    return ask_model(state, (*messages, Draft(UserBody((Text(text),)), step_id=step_id)))


def returns_of(calls: Sequence[Call]) -> Draft:
    """The step's one message of results, in the order that clients of the Letta API expect: results given by the
    client, denied calls, executed calls."""
    ordered = sorted(calls, key=lambda call: (_return_order(call), call.position))
    results = tuple(call.result for call in ordered if call.result is not None)
    ran = next((call.call.name for call in ordered if call.executed), None)
    return Draft(ToolReturnsBody(results), step_id=calls[0].step_id, name=ran)


def _return_order(call: Call) -> int:
    if call.status == "denied":
        return 1
    given = call.request_id is not None and call.status == "settled" and not call.executed
    return 0 if given else 2


def recover_call(config: RunConfig, call: Call, request_id: str) -> Call:
    """What becomes of a started call whose process is gone: run it again, ask a person, or tell the model."""
    if call.status != "started":
        return call
    tool = config.tools.get(call.call.name)
    match on_unknown_of(config, call):
        case "retry":
            return replace(call, status="allowed")
        case "ask":
            expiry = (tool.expiry if tool else None) or config.expiry
            return replace(call, status="unknown", request_id=request_id, expiry=expiry)
        case "tell":
            return _refused(call, OUTCOME_UNKNOWN)


def on_unknown_of(config: RunConfig, call: Call) -> OnUnknown:
    """The tool's `on_unknown`. By default a person is asked only about a call that a person watches over: its tool
    requires approval, a policy may judge it, or it was approved. An app that approves nothing could not answer."""
    name = call.call.name
    tool = config.tools.get(name)
    if tool is None:
        return "tell"
    if tool.on_unknown is not None:
        return tool.on_unknown
    is_watched = (
        call.request_id is not None or name in needs_approval(config.rules) or has_policy(name, config.policies)
    )
    return "ask" if is_watched else "tell"


def with_edit_note(call: Call, result: ToolResult) -> ToolResult:
    """The result with a note for the model if a person edited the arguments; without it the model would think that its
    own arguments gave this result."""
    if call.edited is None:
        return result
    note = f"[A person changed the arguments before approving. This call ran with: {call.edited}]"
    content = result.content
    if isinstance(content, str):
        return replace(result, content=f"{note}\n{content}")
    return replace(result, content=(Text(note), *content))
