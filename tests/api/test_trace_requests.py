"""What a trace shows as its request is what the model server received, whatever happened to the conversation between.

Requests are stored as changes. Random days of an agent, on each vendor's API, check that putting them together again
gives the same JSON, with its keys in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from api.conftest import serving
from holdfast.engine.traces import tracing
from holdfast.storage.sql.database import make_engine
from holdfast.testing.model_server import ModelServer, Received
from holdfast.testing.script import Call, Fail, Hang, Say
from holdfast.testing.waiting import until

MODELS = [
    "openai-proxy/gpt-4o-mini",
    "openai-proxy/gpt-5-mini",
    "anthropic/claude-sonnet-4-5",
    "google_ai/gemini-2.5-flash",
]
TOOL = 'def look(at: str) -> str:\n    """Look.\n\n    Args:\n        at: Where.\n    """\n    return "seen " + at\n'
SECRETS = ["kelp", "4711", '"quoted"', "text"]
DEEDS = [
    *("send", "send", "send to the fork", "call a tool", "fail", "cancel with rollback", "compact", "reset"),
    *("edit memory", "edit the prompt", "set the temperature", "change the model", "hide a secret", "fork"),
    *("delete the last run", "forget"),
]


@pytest.fixture
def house(database_url: str, tmp_path: Path, vendor: ModelServer) -> Iterator[str]:
    vendor.openai_models.append("gpt-5-mini")
    environment = {
        "OPENAI_API_KEY": "sk-operator",
        "ANTHROPIC_API_KEY": "sk-ant-operator",
        "GEMINI_API_KEY": "operator",
        "OPENAI_BASE_URL": vendor.openai_url,
        "ANTHROPIC_BASE_URL": vendor.url,
        "GEMINI_BASE_URL": vendor.gemini_url,
    }
    with serving(database_url, tmp_path, **environment) as url:
        yield url


@dataclass
class Day:
    """An agent, what happens to it, and what the model server received for each of its runs."""

    http: httpx.Client
    vendor: ModelServer
    agent: str
    fork: str | None = None
    sent: int = 0
    secrets: list[str] = field(default_factory=list)
    runs: dict[str, list[str]] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, path, json=body)
        assert answer.status_code < 500, answer.text
        return answer.json() if answer.content else None

    def send(self, to: str | None = None) -> None:
        self.sent += 1
        self.note(to or f"{self.agent}/messages", {"input": f'number {self.sent}: kelp 4711 "quoted" text'})

    def note(self, path: str, body: Any) -> None:
        before = list(self.vendor.received)
        self.ask("POST", path, {**body, "streaming": False})
        (run, *_) = self.ask("GET", f"/v1/runs/?agent_id={self.agent.rpartition('/')[2]}&limit=1")
        received = [one for one in self.vendor.received if one not in before]
        self.runs[run["id"]] = [self.hidden(one) for one in received]

    def hidden(self, received: Received) -> str:
        written = orjson.dumps(received.body).decode()
        for secret in self.secrets:
            written = written.replace(orjson.dumps(secret)[1:-1].decode(), "[hidden]")
        return written

    def do(self, deed: str, choice: int) -> None:
        match deed:
            case "send":
                self.send()
            case "send to the fork":
                self.send(self.fork and f"/v1/conversations/{self.fork}/messages")
            case "call a tool":
                self.vendor.script(Say("Let me see."), Call("look", {"at": choice, "text": "kelp"}))
                self.send()
            case "fail":
                self.vendor.script(Fail(400, message="No."))
                self.send()
            case "cancel with rollback":
                before = len(self.vendor.received)
                self.vendor.script(Say("Half"), Hang())
                run = self.ask("POST", f"{self.agent}/messages/async", {"input": "Take this back."})["id"]
                until(lambda: len(self.vendor.received) > before)
                self.runs[run] = [self.hidden(self.vendor.received[-1])]
                assert self.ask("POST", f"{self.agent}/messages/cancel", {"rollback": True}) == {run: "cancelled"}
            case "compact":
                self.ask("POST", f"{self.agent}/summarize", {"compaction_settings": {"mode": "all"}})
            case "reset":
                self.ask("PATCH", f"{self.agent}/reset-messages", {})
            case "edit memory":
                self.ask("PATCH", f"{self.agent}/core-memory/blocks/human", {"value": f"Ann has {choice} cats."})
            case "edit the prompt":
                self.ask("PATCH", self.agent, {"system": f"You are keeper {choice}."})
            case "set the temperature":
                self.ask("PATCH", self.agent, {"model_settings": {"temperature": choice % 10 / 10}})
            case "change the model":
                self.ask("PATCH", self.agent, {"model": MODELS[choice % len(MODELS)]})
            case "hide a secret":
                self.secrets = [SECRETS[choice % len(SECRETS)]]
                self.ask("PATCH", self.agent, {"secrets": {"TOKEN": self.secrets[0]}})
            case "fork":
                conversation = self.ask("POST", f"/v1/conversations/?agent_id={self.agent.rpartition('/')[2]}", {})
                self.send(f"/v1/conversations/{conversation['id']}/messages")
                self.fork = self.ask("POST", f"/v1/conversations/{conversation['id']}/fork", {})["id"]
            case "delete the last run" if self.runs:
                self.ask("DELETE", f"/v1/runs/{self.runs.popitem()[0]}")
            case _:
                pass


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    model=st.sampled_from(MODELS),
    deeds=st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 30)), min_size=3, max_size=14),
)
def test_a_trace_shows_what_the_model_received(
    house: str, vendor: ModelServer, model: str, deeds: list[tuple[str, int]]
) -> None:
    with httpx.Client(base_url=house, timeout=60) as http:
        made = {"model": model, "memory_blocks": [{"label": "human", "value": "Ann"}], "include_base_tools": False}
        tool = http.put("/v1/tools/", json={"source_code": TOOL}).json()
        agent = http.post("/v1/agents/", json={**made, "tool_ids": [tool["id"]]}).json()
        day = Day(http, vendor, f"/v1/agents/{agent['id']}")
        for deed, choice in deeds:
            day.do(deed, choice)
        for run, received in day.runs.items():
            shown = [orjson.dumps(row["request_json"]).decode() for row in day.ask("GET", f"/v1/runs/{run}/trace")]
            assert shown == received
            for step in day.ask("GET", f"/v1/runs/{run}/steps"):
                trace = day.ask("GET", f"/v1/steps/{step['id']}/trace")
                assert orjson.dumps(trace["request_json"]).decode() in received


def test_a_request_of_which_a_part_is_gone_says_so(house: str, vendor: ModelServer, database_url: str) -> None:
    with httpx.Client(base_url=house, timeout=60) as http:
        agent = http.post("/v1/agents/", json={"model": MODELS[0], "include_base_tools": False}).json()["id"]
        steps = []
        for number in range(4):
            answer = http.post(f"/v1/agents/{agent}/messages", json={"input": f"number {number}"}).json()
            steps.append(answer["messages"][-1]["step_id"])
        assert http.get(f"/v1/steps/{steps[0]}/trace").json()["request_json"] == vendor.received[-4].body
        engine = make_engine(database_url)
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM request_changes WHERE number = 3"))
        engine.dispose()
        shown = [http.get(f"/v1/steps/{step}/trace").json() for step in steps]
        assert [trace["request_json"] for trace in shown[:2]] == [one.body for one in list(vendor.received)[-4:-2]]
        assert [trace["request_json"] for trace in shown[2:]] == [tracing.INCOMPLETE] * 2
        assert all("content" in trace["response_json"] for trace in shown)


def test_the_traces_of_a_conversation_grow_by_what_is_new(house: str, vendor: ModelServer, database_url: str) -> None:
    sizes = []
    engine = make_engine(database_url)
    with httpx.Client(base_url=house, timeout=60) as http:
        agent = http.post("/v1/agents/", json={"model": MODELS[0], "include_base_tools": False}).json()["id"]
        for number in range(40):
            words = "".join(f"{number * 7919 + word:08x}" for word in range(200))
            answer = http.post(f"/v1/agents/{agent}/messages", json={"input": words}).json()
            if number in (9, 39):
                http.get(f"/v1/steps/{answer['messages'][-1]['step_id']}/trace")
                with engine.connect() as connection:
                    query = text("SELECT sum(length(body)) FROM request_changes WHERE number = :number")
                    sizes.append(connection.execute(query, {"number": number + 1}).scalar_one())
    engine.dispose()
    assert sizes[1] < sizes[0] * 1.2


def test_a_history_ends_after_some_changes_so_that_reading_stays_fast(
    house: str, vendor: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "MAX_CHANGES", 2)
    monkeypatch.setattr(tracing, "MAX_REMEMBERED_ENTRIES", 8)
    with httpx.Client(base_url=house, timeout=60) as http:
        agents = [http.post("/v1/agents/", json={"model": MODELS[0]}).json()["id"] for _ in range(2)]
        runs = []
        for number in range(5):
            for agent in agents:
                answer = http.post(f"/v1/agents/{agent}/messages", json={"input": f"number {number}"}).json()
                runs.append(answer["messages"][-1]["run_id"])
        shown = [http.get(f"/v1/runs/{run}/trace").json()[0]["request_json"] for run in runs]
    assert shown == [one.body for one in list(vendor.received)[-10:]]
