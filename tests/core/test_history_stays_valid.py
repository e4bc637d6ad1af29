"""Property tests of the loop over random histories: each call has one return, and the context stays valid.

Vendors accept the context, and the next message is accepted (promise 3 of the README).

A model of a run: it applies decisions to a context and a ledger, picks at random what happens next among what can
happen, and crashes, cancels and restarts at will. Hypothesis prints the history that breaks it.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from core.turns import agent_tool, result, said
from holdfast.core.budget import Budget, seconds_spent
from holdfast.core.conversation.messages import (
    Answer,
    Approval,
    ApprovalRequestBody,
    AssistantBody,
    Body,
    Text,
    ToolCall,
    ToolReturnsBody,
)
from holdfast.core.lifecycle import check_call_change
from holdfast.core.loop import decide
from holdfast.core.model import Reply, ToolSpec, Usage
from holdfast.core.state import (
    BudgetSpent,
    CallModel,
    CancelAsked,
    Compact,
    Compacted,
    CompactionFailed,
    Crashed,
    Decision,
    DecisionsGiven,
    Happened,
    ModelFailed,
    ModelReplied,
    Recovered,
    RunConfig,
    RunLimits,
    RunTools,
    State,
    ToolSettled,
)
from holdfast.core.tools.tool_rules import needs_approval, parse_rule
from holdfast.providers.encoding.turns import AssistantTurn, ResultsTurn, SpokenTurn, Turn, turns
from holdfast.testing.wire_formats.request_reading import as_messages, unpaired

TOOLS = ("look", "pay", "send", "count")


def configs() -> st.SearchStrategy[RunConfig]:
    policies = st.sampled_from(("ask", "retry", "tell", None))
    return st.builds(
        lambda beside, gated, client, parallel, steps, policy, limits: RunConfig(
            tools={name: agent_tool(name, parallel=name in beside, on_unknown=policy) for name in TOOLS},
            rules=tuple(parse_rule({"type": "requires_approval", "tool_name": name}) for name in sorted(gated)),
            client_tools=tuple(ToolSpec(name, name, {"type": "object"}) for name in sorted(client)),
            parallel_calls=parallel,
            max_steps=steps,
            limits=limits,
        ),
        st.sets(st.sampled_from(TOOLS)),
        st.sets(st.sampled_from(TOOLS)),
        st.sets(st.sampled_from(("open_file", "pay"))),
        st.booleans(),
        st.integers(1, 4),
        policies,
        st.builds(
            RunLimits,
            st.just(1_000),
            st.sampled_from((None, 10, 900)),
            st.builds(Budget, st.sampled_from((None, 1, 50)), max_repeats=st.sampled_from((None, 1, 2))),
        ),
    )


class World:
    """A conversation that follows decisions, and remembers what really ran."""

    def __init__(self, config: RunConfig, draw: st.DataObject) -> None:
        self.state = State(config)
        self.draw = draw
        self.context: list[Body] = []
        self.ran: list[str] = []
        self.running: set[str] = set()
        self.steps = 0

    def happens(self, happened: Happened) -> Decision:
        before = {c.call.id: c.status for c in self.state.calls}
        decision = decide(self.state, happened)
        for call in decision.calls:
            if call.call.id in before:
                check_call_change(before[call.call.id], call.status)
        self.context.extend(draft.body for draft in decision.messages)
        self.state = decision.state
        for effect in decision.effects:
            if isinstance(effect, RunTools):
                self.running |= {c.call.id for c in effect.calls}
                self.ran += [c.call.id for c in effect.calls]
        return decision

    def turn(self, first: Happened) -> Decision:
        decision = self.happens(first)
        while decision.stop is None:
            decision = self.happens(self.next(decision))
            self.check_returns(complete=False)
        self.running.clear()
        return decision

    def next(self, decision: Decision) -> Happened:
        if self.draw.draw(st.integers(0, 9), label="crash or cancel") == 0:
            self.running.clear()
            ends: tuple[Happened, ...] = (
                CancelAsked((Text("par"),), "s", "m"),
                Recovered("message-9"),
                Crashed("bug"),
                BudgetSpent(seconds_spent(1), (Text("par"),), "s", "m"),
            )
            return self.draw.draw(st.sampled_from(ends))
        if self.running:
            call_id = self.draw.draw(st.sampled_from(sorted(self.running)), label="finishes")
            self.running.discard(call_id)
            return ToolSettled(call_id, result(call_id))
        for effect in decision.effects:
            if isinstance(effect, Compact):
                failed = CompactionFailed(effect.trigger, "no")
                outcomes: tuple[Happened, ...] = (Compacted(100), Compacted(5_000), failed)
                return self.draw.draw(st.sampled_from(outcomes), label="compaction")
        assert any(isinstance(effect, CallModel) for effect in decision.effects)
        return self.model()

    def model(self) -> Happened:
        self.steps += 1
        if self.draw.draw(st.integers(0, 7), label="model fails") == 0:
            return ModelFailed(self.draw.draw(st.sampled_from(("llm_error", "context_overflow"))), "no")
        names = self.draw.draw(st.lists(st.sampled_from((*TOOLS, "open_file", "ghost")), max_size=3), label="calls")
        calls = tuple(ToolCall(f"c{self.steps}.{i}", name, "{}") for i, name in enumerate(names))
        parts = (Text("hm"),) if self.draw.draw(st.booleans(), label="text") else ()
        reply = Reply(parts, calls, "stop", Usage())
        return ModelReplied(reply, f"step-{self.steps}", f"message-{self.steps}b", f"message-{self.steps}a")

    def answers(self) -> tuple[Answer, ...]:
        def one(call_id: str, client_side: bool) -> Answer:
            kinds = ("deny", "give") if client_side else ("approve", "deny", "give")
            kind = self.draw.draw(st.sampled_from(kinds), label="answer")
            return result(call_id) if kind == "give" else Approval(call_id, kind == "approve", "because")

        return tuple(one(c.call.id, c.client_side) for c in self.state.waiting)

    def check_returns(self, *, complete: bool) -> None:
        asked = [c.id for b in self.context if isinstance(b, (AssistantBody, ApprovalRequestBody)) for c in b.calls]
        returned = [r.call_id for b in self.context if isinstance(b, ToolReturnsBody) for r in b.results]
        assert len(returned) == len(set(returned)), "a call has two returns"
        assert set(returned) <= set(asked), "a return without a call"
        open_now = {c.call.id for c in self.state.calls}
        assert set(asked) - set(returned) == open_now, "a call was forgotten"
        if complete:
            assert not open_now
        assert unpaired(as_messages(_sent(turn) for turn in turns(as_messages(self.context)))) is None


def _sent(turn: Turn) -> Body:
    """As a vendor's server reads it."""
    match turn:
        case AssistantTurn(parts=parts, calls=calls):
            return AssistantBody(parts, calls)
        case ResultsTurn(results=results):
            return ToolReturnsBody(results)
        case SpokenTurn(body=body):
            return body


@settings(max_examples=400, deadline=None)
@given(configs(), st.data())
def test_each_call_has_exactly_one_return_and_the_next_message_is_accepted(
    config: RunConfig, data: st.DataObject
) -> None:
    world = World(config, data)
    for _ in range(data.draw(st.integers(1, 4), label="turns")):
        decision = world.turn(said())
        while decision.stop == "requires_approval":
            world.check_returns(complete=False)
            assert world.state.waiting
            world.state = replace(world.state, steps=0)
            leave = data.draw(st.booleans(), label="cancel while waiting")
            decision = world.turn(CancelAsked() if leave else DecisionsGiven(world.answers()))
        world.check_returns(complete=True)
        world.state = replace(world.state, steps=0, compactions=0)
    if all(tool.on_unknown != "retry" for tool in config.tools.values()):
        repeated = {call_id for call_id in world.ran if world.ran.count(call_id) > 1}
        may_ask = {
            name
            for name, tool in config.tools.items()
            if tool.on_unknown == "ask" or name in needs_approval(config.rules)
        }
        assert not repeated or may_ask, "an effect was repeated unasked"
