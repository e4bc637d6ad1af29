"""Fallback models: another model answers when the agent's own fails, and the step lists the failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, Letta

from api.conftest import serving
from holdfast.core.errors import ModelErrorKind
from holdfast.core.model import Usage
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Count, Drop, Fail, Say

FIRST = "openai-proxy/gpt-4o-mini"
SECOND = "anthropic/claude-sonnet-4-5"
RETRIES = 3  # attempts per provider for errors that may be temporary


@pytest.fixture
def house(database_url: str, tmp_path: Path, vendor: ModelServer) -> Iterator[str]:
    keys = {"OPENAI_API_KEY": "sk-operator", "ANTHROPIC_API_KEY": "sk-ant-operator"}
    urls = {"OPENAI_BASE_URL": vendor.openai_url, "ANTHROPIC_BASE_URL": vendor.url}
    with serving(database_url, tmp_path, **keys, **urls) as url:
        yield url


@pytest.fixture
def client(house: str) -> Iterator[Letta]:
    with Letta(base_url=house, max_retries=0) as sdk:
        yield sdk


def agent_of(client: Letta, *fallbacks: Any, **more: Any) -> str:
    made = client.agents.create(
        model=FIRST, include_base_tools=False, extra_body={"fallback_models": list(fallbacks)}, **more
    )
    return made.id


def failing(vendor: ModelServer, kind: ModelErrorKind, times: int) -> None:
    for _ in range(times):
        vendor.script(Fail.of(kind, retry_after_seconds=0))


@pytest.mark.parametrize(
    ("kind", "times"),
    [
        ("llm_overloaded", RETRIES),
        ("llm_rate_limit", RETRIES),
        ("llm_timeout", 1),
        ("llm_authentication", 1),
        ("llm_insufficient_credits", 1),
        ("llm_error", 1),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_the_next_model_answers(
    client: Letta, house: str, vendor: ModelServer, kind: ModelErrorKind, times: int, streaming: bool
) -> None:
    agent = agent_of(client, SECOND)
    failing(vendor, kind, times)
    vendor.script(Say("I am the second."))
    if streaming:
        events = list(client.agents.messages.create(agent, input="hello", streaming=True, stream_tokens=True))
        said = "".join(str(e.content) for e in events if e.message_type == "assistant_message")
    else:
        said = str(client.agents.messages.create(agent, input="hello").messages[-1].content)  # type: ignore[union-attr]
    assert said == "I am the second."
    assert [one.path for one in vendor.received] == ["/v1/chat/completions"] * times + ["/v1/messages"]
    (step,) = httpx.get(f"{house}/v1/steps/").json()
    assert (step["status"], step["model_handle"], step["provider_name"]) == ("success", SECOND, "anthropic")
    (failed,) = step["failed_models"]
    assert (failed["model_handle"], failed["error_type"]) == (FIRST, kind)
    traces = httpx.get(f"{house}/v1/runs/{step['run_id']}/trace").json()
    assert [trace["llm_config"]["handle"] for trace in traces] == [FIRST, SECOND]
    assert traces[0]["response_json"]["error"]["type"] == kind


def test_a_summary_is_written_by_the_next_model_too_and_its_calls_are_traced(
    client: Letta, house: str, vendor: ModelServer
) -> None:
    agent = agent_of(client, SECOND, compaction_settings={"mode": "all", "model": "openai-proxy/rehearsal"})
    for number in range(2):
        vendor.script(Say(f"answer {number}"))
        client.agents.messages.create(agent, input=f"question {number}")
    failing(vendor, "context_overflow", 1)
    failing(vendor, "llm_authentication", 2)
    vendor.script(Say("They asked twice."), Count(Usage(70, 7)))
    vendor.script(Say("after"), Count(Usage(30, 3)))
    answer = client.agents.messages.create(agent, input="go on")
    run = str(answer.messages[-1].run_id)
    assert (answer.usage.total_tokens, answer.usage.step_count) == (110, 1)
    assert client.runs.usage.retrieve(run).total_tokens == 110
    step = httpx.get(f"{house}/v1/runs/{run}/steps", params={"order": "asc"}).json()[1]
    assert (step["call_type"], step["status"], step["model_handle"]) == ("summarization", "success", SECOND)
    assert [failed["model_handle"] for failed in step["failed_models"]] == ["openai-proxy/rehearsal", FIRST]
    trace = client.steps.trace.retrieve(step["id"])
    assert trace is not None
    assert (trace.call_type, trace.request_json) == ("summarization", vendor.received[-2].body)
    assert trace.compaction_settings is not None
    assert trace.compaction_settings["mode"] == "all"
    assert {"type": "text", "text": "They asked twice."} in trace.response_json["content"]  # type: ignore[operator]
    rows = httpx.get(f"{house}/v1/runs/{run}/trace").json()
    assert [row["call_type"] for row in rows] == ["agent_step", *["summarization"] * 3, "agent_step"]


def test_nothing_is_said_twice_once_a_token_was_shown(client: Letta, vendor: ModelServer) -> None:
    agent = agent_of(client, SECOND)
    vendor.script(Say("Half a sentence"), Drop())
    with pytest.raises(APIStatusError) as broken:
        list(client.agents.messages.create(agent, input="hello", streaming=True, stream_tokens=True))
    assert "llm_error" in str(broken.value)
    assert len(vendor.received) == 1


def test_a_request_that_is_wrong_is_wrong_for_every_model(client: Letta, house: str, vendor: ModelServer) -> None:
    agent = agent_of(client, SECOND)
    failing(vendor, "llm_bad_request", 1)
    answer = httpx.post(f"{house}/v1/agents/{agent}/messages", json={"input": "hello"}, timeout=30)
    assert (answer.status_code, len(vendor.received)) == (400, 1)


def test_when_all_fail_the_last_says_why_and_the_step_names_them_all(
    client: Letta, house: str, vendor: ModelServer
) -> None:
    agent = agent_of(client, SECOND, "openai-proxy/rehearsal")
    for kind in ("llm_authentication", "llm_timeout", "llm_insufficient_credits"):
        failing(vendor, kind, 1)
    answer = httpx.post(f"{house}/v1/agents/{agent}/messages", json={"input": "hello"}, timeout=30)
    assert (answer.status_code, answer.json()["error"]["type"]) == (402, "llm_insufficient_credits")
    (step,) = httpx.get(f"{house}/v1/steps/").json()
    assert (step["status"], step["model_handle"]) == ("failed", "openai-proxy/rehearsal")
    assert [failed["error_type"] for failed in step["failed_models"]] == ["llm_authentication", "llm_timeout"]
    client.agents.messages.create(agent, input="and again")


def test_a_request_that_names_its_model_wants_that_one(client: Letta, house: str, vendor: ModelServer) -> None:
    agent = agent_of(client, SECOND)
    failing(vendor, "llm_authentication", 1)
    body = {"input": "hello", "override_model": "openai-proxy/rehearsal"}
    answer = httpx.post(f"{house}/v1/agents/{agent}/messages", json=body, timeout=30)
    assert (answer.status_code, len(vendor.received)) == (401, 1)


def test_a_fallback_may_have_settings_of_its_own(client: Letta, vendor: ModelServer) -> None:
    settings = {"temperature": 0.1, "extra_body": {"seed": 1}}
    agent = agent_of(client, {"model": SECOND, "model_settings": {"max_output_tokens": 77}}, model_settings=settings)
    failing(vendor, "llm_authentication", 1)
    vendor.script(Say("Second."))
    client.agents.messages.create(agent, input="hello")
    first, second = (one.body for one in vendor.received)
    assert first["seed"] == 1
    assert (second["max_tokens"], second["temperature"], "seed" in second) == (77, 0.1, False)


def test_fallbacks_are_shown_changed_and_taken_away(client: Letta, house: str) -> None:
    agent = agent_of(client, SECOND)
    assert httpx.get(f"{house}/v1/agents/{agent}").json()["fallback_models"] == [{"model": SECOND}]
    for wrong, status in ((["nobody/knows"], 404), (["no-slash"], 400), ([SECOND] * 6, 400), ([{"x": 1}], 400)):
        answer = httpx.patch(f"{house}/v1/agents/{agent}", json={"fallback_models": wrong})
        assert answer.status_code == status, answer.text
    assert httpx.patch(f"{house}/v1/agents/{agent}", json={"fallback_models": []}).json()["fallback_models"] == []
