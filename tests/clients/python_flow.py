"""A day in the life of the Python SDK 1.7.12, run by test_old_python_sdk.py: `python python_flow.py URL MODEL`.

It runs in a virtual environment that has the SDK and nothing else, so it must import nothing of ours. Every function
below is one story with an agent of its own; an assertion that fails ends the program.
"""

import sys
from collections.abc import Callable
from typing import Any

from letta_client import ConflictError, Letta


def roll_dice(sides: int) -> str:
    """Roll a die.

    Args:
        sides (int): How many sides it has.
    """
    return f"rolled a {sides}-sided die"


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def types_of(messages: Any) -> list[str]:
    return [message.message_type for message in messages]


def of_type(messages: Any, kind: str) -> list[Any]:
    return [message for message in messages if message.message_type == kind]


class Flow:
    def __init__(self, url: str, model: str) -> None:
        self.client = Letta(base_url=url, max_retries=0)
        self.model = model
        self.tool = self.client.tools.upsert_from_function(func=roll_dice)

    def agent(self, **given: Any) -> str:
        return self.client.agents.create(
            model=self.model, tool_ids=[self.tool.id], include_base_tools=False, **given
        ).id

    def a_function_becomes_a_tool(self) -> None:
        assert self.tool.name == "roll_dice"
        assert self.tool.json_schema["parameters"]["properties"]["sides"]["type"] == "integer"
        assert "How many sides it has." in str(self.tool.json_schema)
        again = self.client.tools.upsert_from_function(func=roll_dice, tags=["games"])
        assert (again.id, again.tags) == (self.tool.id, ["games"])
        assert [tool.id for tool in self.client.tools.list(name="roll_dice")] == [self.tool.id]

    def an_agent_answers_with_its_tool(self) -> None:
        agent = self.agent(name="Old Friend", memory_blocks=[{"label": "human", "value": "Ada"}])
        kept = self.client.agents.retrieve(agent, include=["agent.blocks", "agent.tools"])
        assert (kept.name, [block.value for block in kept.memory.blocks]) == ("Old Friend", ["Ada"])
        assert [tool.name for tool in kept.tools] == ["roll_dice"]
        response = self.client.agents.messages.create(agent, messages=said("call roll_dice with 16"))
        assert response.stop_reason.stop_reason == "end_turn"
        [returned] = of_type(response.messages, "tool_return_message")
        assert (returned.status, returned.tool_return) == ("success", "rolled a 16-sided die")
        assert response.usage.step_count == 2

    def a_step_stream_has_whole_messages(self) -> None:
        stream = self.client.agents.messages.create(
            self.agent(), messages=said('/call roll_dice {"sides": 6}\n/then /say It fell.'), streaming=True
        )
        chunks = list(stream)
        assert chunks[0].message_type == "ping"
        [called] = of_type(chunks, "tool_call_message")
        assert (called.tool_call.name, called.tool_call.arguments) == ("roll_dice", '{"sides":6}')
        assert [m.tool_return for m in of_type(chunks, "tool_return_message")] == ["rolled a 6-sided die"]
        assert [m.content for m in of_type(chunks, "assistant_message")] == ["It fell."]
        assert types_of(chunks)[-2:] == ["stop_reason", "usage_statistics"]

    def a_token_stream_adds_up(self) -> None:
        agent = self.agent()
        asked = said('/say one two three\n/call roll_dice {"sides": 20}\n/then /say four five six')
        chunks = list(self.client.agents.messages.stream(agent, messages=asked, stream_tokens=True))
        spoken = of_type(chunks, "assistant_message")
        assert len(spoken) >= 6
        assert "".join(m.content for m in spoken) == "one two threefour five six"
        calls = of_type(chunks, "tool_call_message")
        assert "".join(m.tool_call.arguments or "" for m in calls) == '{"sides":20}'
        assert {m.tool_call.name for m in calls if m.tool_call.name} == {"roll_dice"}
        listed = of_type(self.client.agents.messages.list(agent), "assistant_message")
        assert [m.content for m in listed] == ["one two three", "four five six"]
        assert {m.id for m in listed} == {m.id for m in spoken}

    def messages_are_paged_by_cursor(self) -> None:
        agent = self.agent()
        for number in range(4):
            self.client.agents.messages.create(agent, messages=said(f"/no-reasoning\n/say answer {number}"))
        listing = self.client.agents.messages.list
        everything = [message.id for message in listing(agent, order="asc").items]
        assert len(everything) == len(set(everything)) == 9
        assert [message.id for message in listing(agent, order="asc", limit=2)] == everything
        assert [m.id for m in listing(agent, order="asc", after=everything[4]).items] == everything[5:]
        assert [m.id for m in listing(agent, before=everything[4], limit=2).items] == everything[2:4]
        backwards = list(listing(agent, before=everything[-1], limit=3))
        assert sorted(m.id for m in backwards) == sorted(everything[:-1])

    def an_approved_call_is_made(self) -> None:
        agent, call, _ = self.waiting_for_approval()
        response = self.client.agents.messages.create(agent, messages=[answer(call, approve=True)])
        [returned] = of_type(response.messages, "tool_return_message")
        assert (returned.status, returned.tool_return) == ("success", "rolled a 6-sided die")
        assert response.stop_reason.stop_reason == "end_turn"
        assert "approval_response_message" in types_of(self.client.agents.messages.list(agent))

    def a_denied_call_is_not_made_and_the_model_hears_why(self) -> None:
        agent, call, _ = self.waiting_for_approval()
        response = self.client.agents.messages.create(agent, messages=[answer(call, approve=False, reason="no games")])
        [returned] = of_type(response.messages, "tool_return_message")
        assert returned.status == "error"
        assert "no games" in returned.tool_return
        assert "no games" in response.messages[-1].content
        assert response.stop_reason.stop_reason == "end_turn"

    def a_new_message_must_wait_for_the_approval(self) -> None:
        agent, call, request = self.waiting_for_approval()
        refused = refusal_of(lambda: self.client.agents.messages.create(agent, messages=said("hello?")))
        assert "waiting for approval" in str(refused)
        assert refused.body["detail"]["pending_request_id"] == request
        stream = self.client.agents.messages.stream(agent, messages=[answer(call, approve=True)])
        assert "rolled a 6-sided die" in [m.tool_return for m in of_type(stream, "tool_return_message")]

    def waiting_for_approval(self) -> tuple[str, str, str]:
        """An agent, the call it waits for, and the message that asks."""
        agent = self.agent(tool_rules=[{"type": "requires_approval", "tool_name": "roll_dice"}])
        response = self.client.agents.messages.create(agent, messages=said("call roll_dice with 6"))
        assert response.stop_reason.stop_reason == "requires_approval"
        [request] = of_type(response.messages, "approval_request_message")
        return agent, request.tool_call.tool_call_id, request.id

    def runs_can_be_read(self) -> None:
        agent = self.agent()
        first = self.client.agents.messages.create(agent, messages=said("call roll_dice with 6"))
        started = self.client.agents.messages.create_async(agent, messages=said("/say later"))
        list(self.client.runs.messages.stream(started.id))
        newest, oldest = self.client.runs.list(agent_id=agent).items
        assert (newest.id, newest.status, newest.stop_reason) == (started.id, "completed", "end_turn")
        assert self.client.runs.retrieve(oldest.id).agent_id == agent
        assert self.client.runs.list(agent_id=agent, active=True).items == []
        assert types_of(self.client.runs.messages.list(oldest.id))[0] == "user_message"
        assert self.client.runs.usage.retrieve(oldest.id).total_tokens == first.usage.total_tokens > 0
        assert [step.status for step in self.client.runs.steps.list(oldest.id)] == ["success", "success"]


def answer(call: str, **given: Any) -> dict[str, Any]:
    return {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": call, **given}]}


def refusal_of(asked: Callable[[], object]) -> ConflictError:
    try:
        asked()
    except ConflictError as refused:
        return refused
    raise AssertionError("it was not refused")


def main(url: str, model: str) -> None:
    flow = Flow(url, model)
    for story in (
        flow.a_function_becomes_a_tool,
        flow.an_agent_answers_with_its_tool,
        flow.a_step_stream_has_whole_messages,
        flow.a_token_stream_adds_up,
        flow.messages_are_paged_by_cursor,
        flow.an_approved_call_is_made,
        flow.a_denied_call_is_not_made_and_the_model_hears_why,
        flow.a_new_message_must_wait_for_the_approval,
        flow.runs_can_be_read,
    ):
        sys.stdout.write(f"{story.__name__}\n")
        story()


if __name__ == "__main__":
    main(*sys.argv[1:])
