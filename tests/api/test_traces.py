"""Traces: the model request and response of each step, without secrets, until retention deletes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import Letta
from sqlalchemy import text

from api.conftest import serving
from holdfast.engine.traces.packing import MAX_BODY_BYTES
from holdfast.storage.sql.database import make_engine
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Call, Fail, Hang, Say, Think
from holdfast.testing.waiting import until

OPENAI = "openai-proxy/gpt-4o-mini"
ANTHROPIC = "anthropic/claude-sonnet-4-5"
SECRET = 'tool-secret-"quoted"-0815'
PATIENCE_SECONDS = 20.0


def environment(vendor: ModelServer) -> dict[str, str]:
    keys = {"OPENAI_API_KEY": "sk-operator", "ANTHROPIC_API_KEY": "sk-ant-operator"}
    return {**keys, "OPENAI_BASE_URL": vendor.openai_url, "ANTHROPIC_BASE_URL": vendor.url}


@pytest.fixture
def house(database_url: str, tmp_path: Path, vendor: ModelServer) -> Iterator[str]:
    with serving(database_url, tmp_path, **environment(vendor)) as url:
        yield url


@pytest.fixture
def client(house: str) -> Iterator[Letta]:
    with Letta(base_url=house, max_retries=0) as sdk:
        yield sdk


def agent_of(client: Letta, model: str = OPENAI, **more: Any) -> str:
    return client.agents.create(model=model, include_base_tools=False, **more).id


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
def test_a_step_can_be_looked_at_afterwards(client: Letta, vendor: ModelServer, model: str) -> None:
    agent = agent_of(client, model, tags=["looked-at"])
    vendor.script(Think("Hm."), Say("Hello."))
    answer = client.agents.messages.create(agent, input="hi")
    step = answer.messages[-1].step_id
    assert step is not None
    trace = client.steps.trace.retrieve(step)
    assert trace is not None
    assert trace.request_json == vendor.received[-1].body
    assert {"type": "text", "text": "Hello."} in trace.response_json["content"]  # type: ignore[operator]
    assert trace.response_json["finish_reason"] == "stop"
    assert (trace.step_id, trace.agent_id, trace.call_type) == (step, agent, "agent_step")
    assert trace.llm_config is not None
    assert trace.llm_config["handle"] == model
    assert trace.latency_ms is not None
    assert trace.agent_tags == ["looked-at"]
    assert [row["step_id"] for row in client.runs.trace.retrieve(str(trace.run_id))] == [step]
    (found,) = client.steps.list(trace_ids=[step.removeprefix("step-")]).items
    assert found.id == step


def test_every_step_of_a_run_is_traced_in_order(client: Letta, vendor: ModelServer) -> None:
    tool = client.tools.upsert(source_code='def ping() -> str:\n    """Ping."""\n    return "pong"\n')
    agent = agent_of(client, tool_ids=[tool.id])
    vendor.script(Call("ping", {}))
    vendor.script(Say("Pong."))
    answer = client.agents.messages.create(agent, input="ping it")
    rows = client.runs.trace.retrieve(str(answer.messages[-1].run_id))
    assert [row["request_json"] for row in rows] == [one.body for one in vendor.received]
    assert [bool(row["response_json"]["tool_calls"]) for row in rows] == [True, False]  # type: ignore[index]
    assert len(client.runs.trace.retrieve(str(answer.messages[-1].run_id), limit=1)) == 1


def test_a_failed_call_has_a_trace_too(client: Letta, house: str, vendor: ModelServer) -> None:
    agent = agent_of(client)
    vendor.script(Fail(400, message="You cannot ask that."))
    assert httpx.post(f"{house}/v1/agents/{agent}/messages", json={"input": "hi"}).status_code == 400
    (step,) = client.steps.list(agent_id=agent).items
    trace = client.steps.trace.retrieve(step.id)
    assert trace is not None
    assert trace.request_json == vendor.received[-1].body
    assert "You cannot ask that." in trace.response_json["error"]["message"]  # type: ignore[index]


def test_a_call_that_was_cut_off_says_so(client: Letta, vendor: ModelServer) -> None:
    agent = agent_of(client)
    vendor.script(Say("Half"), Hang())
    run = client.agents.messages.create_async(agent, messages=[{"role": "user", "content": "hi"}])
    until(lambda: vendor.received)
    client.agents.messages.cancel(agent, run_ids=[run.id])
    (row,) = client.runs.trace.retrieve(run.id)
    assert row["response_json"] == {"interrupted": True}
    assert row["request_json"] == vendor.received[-1].body


def test_an_agents_secrets_are_not_in_its_traces(client: Letta, vendor: ModelServer) -> None:
    agent = agent_of(client, secrets={"TOKEN": SECRET})
    vendor.script(Say(f"You said {SECRET}."), Call("nothing", {"with": SECRET}))
    vendor.script(Say("done"))
    answer = client.agents.messages.create(agent, input=f"my token is {SECRET}, keep it")
    assert SECRET in str(vendor.received[0].body)
    rows = str(client.runs.trace.retrieve(str(answer.messages[-1].run_id)))
    assert SECRET not in rows
    assert "0815" not in rows
    assert "my token is [hidden], keep it" in rows


def test_what_is_too_large_is_cut_and_says_so(client: Letta, vendor: ModelServer, database_url: str) -> None:
    agent = agent_of(client)
    vendor.script(Say("That was long."))
    answer = client.agents.messages.create(agent, input="kelp " * (MAX_BODY_BYTES // 3))
    trace = client.steps.trace.retrieve(str(answer.messages[-1].step_id))
    assert trace is not None
    assert "characters left out]" in str(trace.request_json)
    assert len(str(trace.request_json)) < MAX_BODY_BYTES
    assert trace.response_json["content"] == [{"type": "text", "text": "That was long."}]


def test_traces_go_with_their_run(client: Letta, house: str, vendor: ModelServer, database_url: str) -> None:
    agent = agent_of(client)
    answer = client.agents.messages.create(agent, input="hi")
    run = str(answer.messages[-1].run_id)
    assert client.runs.trace.retrieve(run)
    assert httpx.delete(f"{house}/v1/runs/{run}").status_code == 200
    engine = make_engine(database_url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM traces")).scalar_one() == 0
    engine.dispose()


def test_no_traces_are_kept_if_the_operator_wants_none(database_url: str, tmp_path: Path, vendor: ModelServer) -> None:
    with (
        serving(database_url, tmp_path, HOLDFAST_TRACE_RETENTION_DAYS="0", **environment(vendor)) as url,
        Letta(base_url=url, max_retries=0) as client,
    ):
        answer = client.agents.messages.create(agent_of(client), input="hi")
        assert client.steps.trace.retrieve(str(answer.messages[-1].step_id)) is None
        assert client.runs.trace.retrieve(str(answer.messages[-1].run_id)) == []


def test_the_trace_of_an_unknown_step_or_run_is_not_found(house: str) -> None:
    nobody = "00000000-0000-4000-8000-000000000000"
    assert httpx.get(f"{house}/v1/steps/step-{nobody}/trace").status_code == 404
    assert httpx.get(f"{house}/v1/runs/run-{nobody}/trace").status_code == 404
    assert httpx.get(f"{house}/v1/steps/step-x/trace").status_code == 422


def test_steps_are_found_by_their_tags(client: Letta) -> None:
    agent = agent_of(client)
    first = client.agents.messages.create(agent, input="one").messages[-1].step_id
    client.agents.messages.create(agent, input="two")
    client.steps.feedback.create(str(first), feedback="positive", tags=["good", "short"])
    assert [step.id for step in client.steps.list(tags=["good", "never"]).items] == [first]
    assert client.steps.list(tags=["never"]).items == []
