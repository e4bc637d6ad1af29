"""A day of use over HTTP: messages, approvals, queued runs, cancels, all listings that clients send, search, deletion.

It runs beside the rows of `bench.large_database`: some requests are about its busy agent and its long conversation, so
that a statement which reads all that an agent has ever done is noticed too.
"""

from __future__ import annotations

from typing import Any

import httpx

from api.conftest import MODEL
from bench.large_rows import BUSY, ORDINARY, TALKATIVE, record_id
from holdfast.testing.waiting import until

PAY = '''
def pay(to: str) -> str:
    """Pay a person.

    Args:
        to: The person's name.
    """
    return "paid " + to
'''
BUSY_AGENT, TALKATIVE_AGENT, AGENT = (record_id("agent", number) for number in (BUSY, TALKATIVE, ORDINARY))
LONG_CONVERSATION, CONVERSATION = record_id("conv", TALKATIVE), record_id("conv", ORDINARY + 1)
RUN, STEP, MESSAGE = record_id("run", 5), record_id("step", 5), record_id("message", ORDINARY)

# What is listed, below /v1/. Listings of runs by tool and percentile have limits of their own: `bench listing`.
LISTINGS = f"""
    agents/  agents/?order_by=last_run_completion  agents/?name=keeper-7  agents/?tags=tag-7  agents/?tags=everyone
    agents/?tags=tag-7&tags=everyone&match_all_tags=true  agents/?after={AGENT}  agents/?before={AGENT}&order=asc
    agents/count  blocks/{record_id("block", 0)}/agents  archives/{record_id("archive", 0)}/agents
    tools/  tools/?name=measure_7  tools/count  blocks/  blocks/?label=human  blocks/count
    archives/  archives/?name=log  conversations/  conversations/?order_by=last_message_at  providers/  mcp-servers/
    approvals  approvals?status=decided  approvals?status=all&limit=20  approvals?tool_name=pay  approvals/allowances
    approvals/{record_id("approval", 6)}  approvals?tool_name=nothing
    runs/  runs/active  runs/?active=true  runs/?statuses=failed  runs/?background=true  runs/?stop_reason=error
    runs/?order_by=duration  runs/?after={RUN}  runs/?order=asc  runs/?conversation_id=default
    runs/{RUN}  runs/{RUN}/messages  runs/{RUN}/steps  runs/{RUN}/usage  runs/{RUN}/metrics  runs/{RUN}/trace
    steps/  steps/?feedback=positive  steps/?has_feedback=true  steps/?after={STEP}
    steps/{STEP}  steps/{STEP}/messages  steps/{STEP}/trace  steps/{STEP}/metrics
    messages/  messages/?after={MESSAGE}  messages/{MESSAGE}
"""
OF_AN_AGENT = """
    agents/{agent}  agents/{agent}/messages  agents/{agent}/messages?conversation_id=default  agents/{agent}/context
    agents/{agent}/tools  agents/{agent}/core-memory/blocks  agents/{agent}/core-memory/blocks/human
    agents/{agent}/archival-memory  archives/?agent_id={agent}  steps/?agent_id={agent}  approvals?agent_id={agent}
    runs/?agent_id={agent}  runs/active?agent_id={agent}  runs/?agent_id={agent}&statuses=failed
    runs/?agent_id={agent}&active=true  runs/?agent_id={agent}&order_by=duration
    conversations/?agent_id={agent}  conversations/?agent_id={agent}&order_by=last_message_at
"""
OF_A_CONVERSATION = """
    conversations/{conversation}/messages  conversations/{conversation}/messages?order=asc
    conversations/{conversation}/context  messages/?conversation_id={conversation}
    approvals?conversation_id={conversation}  runs/?conversation_id={conversation}
    runs/active?conversation_id={conversation}
"""


class Person:
    """Sends the requests of a day to a server."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.status_code < 300, (path, answer.text)
        return answer.json() if answer.content and "json" in answer.headers["content-type"] else None

    def _wait_until_idle(self, agent: str) -> None:
        path = f"/v1/runs/active?agent_id={agent.rpartition('/')[2]}"
        until(lambda: not self.ask("GET", path), poll_seconds=0.1)

    def a_day(self) -> None:
        self._list()
        self._search()
        agent = self._new_agent()
        self._converse(agent)
        self._wait_for_people(agent)
        self._call_home(agent)
        self._follow_and_delete(agent)
        self._use_what_is_large()

    def _list(self) -> None:
        paths = LISTINGS.split()
        for agent in (BUSY_AGENT, TALKATIVE_AGENT, AGENT):
            paths += OF_AN_AGENT.format(agent=agent).split()
        for conversation in (LONG_CONVERSATION, CONVERSATION):
            paths += OF_A_CONVERSATION.format(conversation=conversation).split()
        middle = self.ask("GET", f"/v1/conversations/{LONG_CONVERSATION}/messages?limit=200")[-1]["id"]
        paths += [f"conversations/{LONG_CONVERSATION}/messages?before={middle}"]
        paths += [f"agents/{TALKATIVE_AGENT}/messages?before={middle}"]
        for path in paths:
            self.ask("GET", f"/v1/{path}")

    def _search(self) -> None:
        for scope in ({}, {"agent_id": BUSY_AGENT}, {"conversation_id": LONG_CONVERSATION}):
            for query in ("watch", "nothingofthekind"):
                self.ask("POST", "/v1/messages/search", {"query": query, **scope})
        self.ask("POST", "/v1/passages/search", {"query": "depth", "archive_id": record_id("archive", 7)})
        self.ask("GET", f"/v1/agents/{AGENT}/archival-memory/search?query=depth")

    def _new_agent(self) -> str:
        tool = self.ask("PUT", "/v1/tools/", {"source_code": PAY, "default_requires_approval": True})
        expiry = {"after_seconds": 2, "then": "deny", "warn_before_seconds": 1}
        given = {"model": MODEL, "tool_ids": [tool["id"]], "memory_blocks": [{"label": "human", "value": "Ann"}]}
        made = self.ask("POST", "/v1/agents/", {"name": "Teller", "approval_expiry": expiry, "tags": ["t"], **given})
        agent = f"/v1/agents/{made['id']}"
        self.ask("PATCH", agent, {"description": "pays"})
        self.ask("POST", f"{agent}/archival-memory", {"text": "The depth was 7 fathoms."})
        self.ask("PATCH", f"{agent}/core-memory/blocks/human", {"value": "Bob"})
        return agent

    def _converse(self, agent: str) -> None:
        otid = {"messages": [{"role": "user", "content": "Hello.", "otid": "hello-1"}]}
        for _ in range(2):
            self.ask("POST", f"{agent}/messages", otid)
        self.ask("POST", f"{agent}/messages", {"input": '/call conversation_search {"query": "hello"}'})
        streamed = {"input": "/slow 100\n/tokens 50", "streaming": True, "stream_tokens": True}
        with self._http.stream("POST", f"{agent}/messages", json={**streamed, "background": True}) as records:
            next(records.iter_lines())
            self.ask("POST", f"{agent}/messages/async", {"input": "And then?", "when_busy": "queue"})
            self.ask("GET", f"/v1/runs/active?agent_id={agent.rpartition('/')[2]}")
        self._wait_until_idle(agent)
        with self._http.stream("POST", f"{agent}/messages", json={**streamed, "background": True}) as records:
            next(records.iter_lines())
            self.ask("POST", f"{agent}/messages/cancel", {"rollback": True})
        self.ask("POST", f"{agent}/summarize", {})

    def _wait_for_people(self, agent: str) -> None:
        """One approval that a person gives, and one that expires after a warning."""
        mine = f"agent_id={agent.rpartition('/')[2]}"
        self.ask("POST", f"{agent}/messages", {"input": '/call pay {"to": "Bob"}'})
        (waiting,) = self.ask("GET", f"/v1/approvals?{mine}")
        self.ask("GET", "/v1/agents/?limit=5&include=agent.pending_approval&name=Teller")
        self.ask("POST", f"/v1/approvals/{waiting['id']}", {"decision": "approve"})
        self._wait_until_idle(agent)
        self.ask("POST", f"{agent}/messages", {"input": '/call pay {"to": "Eve"}'})
        until(lambda: not self.ask("GET", f"/v1/approvals?{mine}"), poll_seconds=0.1)
        self._wait_until_idle(agent)

    def _call_home(self, agent: str) -> None:
        """A run that waits while its lease is renewed, with a webhook at its end."""
        slow = {"input": "/slow 1500", "callback_url": "http://127.0.0.1:9/done"}
        run = self.ask("POST", f"{agent}/messages/async", slow)
        until(lambda: self.ask("GET", f"/v1/runs/{run['id']}").get("callback_error"), poll_seconds=0.1)

    def _follow_and_delete(self, agent: str) -> None:
        run = self.ask("GET", f"/v1/runs/?agent_id={agent.rpartition('/')[2]}")[-1]
        self.ask("POST", f"/v1/runs/{run['id']}/stream", {"starting_after": 1})
        step = self.ask("GET", f"/v1/runs/{run['id']}/steps")[0]
        self.ask("PATCH", f"/v1/steps/{step['id']}/feedback", {"feedback": "positive"})
        made = self.ask("POST", f"/v1/conversations/?agent_id={agent.rpartition('/')[2]}", {})
        conversation = f"/v1/conversations/{made['id']}"
        self.ask("POST", f"{conversation}/messages", {"input": "Elsewhere.", "streaming": False})
        fork = self.ask("POST", f"{conversation}/fork", {})
        self.ask("POST", f"/v1/conversations/{fork['id']}/messages", {"input": "Beside.", "streaming": False})
        for path in (f"/v1/conversations/{fork['id']}", conversation, f"/v1/runs/{run['id']}"):
            self.ask("DELETE", path)
        self.ask("PATCH", f"{agent}/reset-messages", {})
        self.ask("DELETE", agent)

    def _use_what_is_large(self) -> None:
        """Messages in the long conversation and to the busy agent; an ordinary agent is deleted with all it has."""
        retried = {"x-stainless-retry-count": "1", "user-agent": "Letta/Python 1.12.1"}
        for agent in (TALKATIVE_AGENT, BUSY_AGENT):
            messages = f"/v1/agents/{agent}/messages"
            self.ask("POST", messages, {"input": "What do you see?"})
            self.ask("POST", messages, {"input": "And now?", "when_busy": "queue"})
            self.ask("POST", messages, {"input": '/call conversation_search {"query": "light"}'})
            self._http.post(messages, json={"input": "Again?"}, headers=retried)
            run = self.ask("POST", f"{messages}/async", {"input": "/slow 60000"})
            self.ask("POST", f"{messages}/cancel", {"run_ids": [run["id"]], "rollback": True})
        self.ask("DELETE", f"/v1/agents/{AGENT}")
