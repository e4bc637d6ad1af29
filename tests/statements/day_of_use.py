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
LONG_CONVERSATION, BUSY_CONVERSATION = record_id("conv", TALKATIVE), record_id("conv", BUSY)
RUN, STEP, MESSAGE = record_id("run", 5), record_id("step", 5), record_id("message", ORDINARY)

LISTINGS = (
    *("/v1/agents/", "/v1/agents/?order_by=last_run_completion", "/v1/agents/?name=keeper-7", "/v1/agents/count"),
    *("/v1/agents/?tags=tag-7", "/v1/agents/?tags=everyone", "/v1/agents/?tags=tag-7&tags=everyone&match_all_tags=true"),
    *(f"/v1/agents/?after={AGENT}", f"/v1/agents/?before={AGENT}&order=asc", f"/v1/blocks/{record_id('block', 0)}/agents"),
    *("/v1/tools/", "/v1/tools/?name=measure_7", "/v1/tools/count", "/v1/blocks/", "/v1/blocks/?label=human"),
    *("/v1/archives/", "/v1/archives/?name=log", f"/v1/archives/{record_id('archive', 0)}/agents", "/v1/blocks/count"),
    *("/v1/conversations/", "/v1/conversations/?order_by=last_message_at", "/v1/providers/", "/v1/mcp-servers/"),
    *("/v1/approvals", "/v1/approvals?status=decided", "/v1/approvals?status=all&limit=20", "/v1/approvals/allowances"),
    *(f"/v1/approvals/{record_id('approval', 6)}", "/v1/approvals?tool_name=pay", "/v1/approvals?tool_name=nothing"),
    *("/v1/runs/", "/v1/runs/active", "/v1/runs/?active=true", "/v1/runs/?statuses=failed", "/v1/runs/?background=true"),
    *("/v1/runs/?stop_reason=error", "/v1/runs/?order_by=duration", f"/v1/runs/?after={RUN}", "/v1/runs/?order=asc"),
    *("/v1/runs/?tools_used=measure_0", "/v1/runs/?duration_percentile=90", "/v1/runs/?conversation_id=default"),
    *(f"/v1/runs/{RUN}", f"/v1/runs/{RUN}/messages", f"/v1/runs/{RUN}/steps", f"/v1/runs/{RUN}/usage"),
    *(f"/v1/runs/{RUN}/metrics", f"/v1/runs/{RUN}/trace", f"/v1/steps/{STEP}", f"/v1/steps/{STEP}/messages"),
    *(f"/v1/steps/{STEP}/trace", f"/v1/steps/{STEP}/metrics", "/v1/steps/", f"/v1/steps/?agent_id={BUSY_AGENT}"),
    *("/v1/steps/?feedback=positive", "/v1/steps/?has_feedback=true", f"/v1/steps/?after={STEP}"),
    *("/v1/messages/", f"/v1/messages/{MESSAGE}", f"/v1/messages/?conversation_id={LONG_CONVERSATION}"),
)
OF_AN_AGENT = (
    *("/v1/agents/{agent}", "/v1/agents/{agent}/messages", "/v1/agents/{agent}/messages?conversation_id=default"),
    *("/v1/agents/{agent}/context", "/v1/agents/{agent}/tools", "/v1/agents/{agent}/core-memory/blocks"),
    *("/v1/agents/{agent}/core-memory/blocks/human", "/v1/agents/{agent}/archival-memory", "/v1/steps/?agent_id={agent}"),
    *("/v1/runs/?agent_id={agent}", "/v1/runs/active?agent_id={agent}", "/v1/runs/?agent_id={agent}&statuses=failed"),
    *("/v1/runs/?agent_id={agent}&active=true", "/v1/runs/?agent_id={agent}&order_by=duration"),
    *("/v1/conversations/?agent_id={agent}", "/v1/approvals?agent_id={agent}", "/v1/archives/?agent_id={agent}"),
    "/v1/conversations/?agent_id={agent}&order_by=last_message_at",
)
OF_A_CONVERSATION = (
    *("/v1/conversations/{conversation}/messages", "/v1/conversations/{conversation}/context"),
    *("/v1/conversations/{conversation}/messages?order=asc", "/v1/approvals?conversation_id={conversation}"),
    *("/v1/runs/?conversation_id={conversation}", "/v1/runs/active?conversation_id={conversation}"),
)


class Person:
    """Sends the requests of a day to a server."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.status_code < 300, (path, answer.text)
        return answer.json() if answer.content and "json" in answer.headers["content-type"] else None

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
        for path in LISTINGS:
            self.ask("GET", path)
        for agent in (BUSY_AGENT, TALKATIVE_AGENT, AGENT):
            for path in OF_AN_AGENT:
                self.ask("GET", path.format(agent=agent))
        for conversation in (LONG_CONVERSATION, BUSY_CONVERSATION):
            for path in OF_A_CONVERSATION:
                self.ask("GET", path.format(conversation=conversation))
        newest = self.ask("GET", f"/v1/conversations/{LONG_CONVERSATION}/messages?limit=10")[-1]["id"]
        self.ask("GET", f"/v1/conversations/{LONG_CONVERSATION}/messages?before={newest}")
        self.ask("GET", f"/v1/agents/{BUSY_AGENT}/messages?before={newest}")

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
        until(lambda: not self.ask("GET", "/v1/runs/?active=true&agent_id=" + agent.rpartition("/")[2]), seconds=30)
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
        until(lambda: not self.ask("GET", f"/v1/runs/active?{mine}"), seconds=30)
        self.ask("POST", f"{agent}/messages", {"input": '/call pay {"to": "Eve"}'})
        until(lambda: not self.ask("GET", f"/v1/approvals?{mine}"), seconds=30)

    def _call_home(self, agent: str) -> None:
        """A run that waits while its lease is renewed, with a webhook at its end."""
        slow = {"input": "/slow 1500", "callback_url": "http://127.0.0.1:9/done"}
        run = self.ask("POST", f"{agent}/messages/async", slow)
        until(lambda: self.ask("GET", f"/v1/runs/{run['id']}").get("callback_error"), seconds=30)

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
        for agent in (TALKATIVE_AGENT, BUSY_AGENT):
            self.ask("POST", f"/v1/agents/{agent}/messages", {"input": "What do you see?"})
            self.ask("POST", f"/v1/agents/{agent}/messages/cancel", {})
        self.ask("DELETE", f"/v1/agents/{AGENT}")
