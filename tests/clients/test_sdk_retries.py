"""The official SDK retries on its own when a response is late, lost or a 5xx; no work is done twice."""

from __future__ import annotations

import threading

import httpx
import pytest
from letta_client import APIStatusError, Letta

from holdfast.testing.server import ServerProcess
from holdfast.testing.waiting import until
from server_fixture import Served

EFFECT = '''
def leave_a_mark() -> str:
    """Leave a mark."""
    return "marked"
'''
AGAIN = {"x-stainless-retry-count": "1"}
FIRST = {"x-stainless-retry-count": "0"}


def new_agent(client: Letta, *tool_ids: str) -> str:
    return client.agents.create(model="demo/rehearsal", include_base_tools=False, tool_ids=list(tool_ids)).id


def said_and_run(client: Letta, agent_id: str) -> tuple[int, int]:
    """The number of user messages that the agent received, and the number of its runs."""
    messages = [m for m in client.agents.messages.list(agent_id, limit=100) if m.message_type == "user_message"]
    return len(messages), len(list(client.runs.list(agent_id=agent_id)))


@pytest.mark.parametrize("kind", ["llm_error", "llm_rate_limit", "llm_timeout", "overloaded"])
def test_a_turn_that_failed_is_not_sent_again(served: Served, kind: str) -> None:
    client = Letta(base_url=served.url)
    agent_id = new_agent(client)
    with pytest.raises(APIStatusError):
        client.agents.messages.create(agent_id, input=f"/fail {kind}")
    assert said_and_run(client, agent_id) == (1, 1)


def test_a_tool_runs_once_although_the_model_fails_after_it(served: Served) -> None:
    client = Letta(base_url=served.url)
    agent_id = new_agent(client, client.tools.create(source_code=EFFECT).id)
    with pytest.raises(APIStatusError):
        client.agents.messages.create(agent_id, input="/call leave_a_mark {}\n/then\n/fail llm_error")
    returned = [m for m in client.agents.messages.list(agent_id, limit=100) if m.message_type == "tool_return_message"]
    assert [m.tool_return for m in returned] == ["marked"]


def test_a_client_that_timed_out_gets_the_response_of_the_run_it_started(served: Served) -> None:
    client = Letta(base_url=served.url)
    agent_id = new_agent(client)
    impatient = client.with_options(timeout=1.0, max_retries=8)
    answer = impatient.agents.messages.create(agent_id, input="/slow 40\n/tokens 50")
    assert answer.messages[-1].message_type == "assistant_message"
    assert str(answer.messages[-1].content).endswith("word50")
    assert said_and_run(client, agent_id) == (1, 1)


def test_an_answer_that_came_just_too_late_is_given_when_it_is_asked_for_again(served: Served) -> None:
    client = Letta(base_url=served.url)
    agent_id = new_agent(client)
    body = {"input": "/slow 40\n/tokens 20"}
    http = httpx.Client(base_url=served.url)
    with pytest.raises(httpx.ReadTimeout):
        http.post(f"/v1/agents/{agent_id}/messages", json=body, headers=FIRST, timeout=0.5)
    run = until(lambda: client.runs.list(agent_id=agent_id).items)[0]
    list(client.runs.messages.stream(run.id))
    again = http.post(f"/v1/agents/{agent_id}/messages", json=body, headers=AGAIN, timeout=10)
    assert {message["run_id"] for message in again.json()["messages"]} == {run.id}
    assert said_and_run(client, agent_id) == (1, 1)


def test_the_same_words_said_again_are_a_new_request_even_if_they_needed_two_tries(served: Served) -> None:
    client = Letta(base_url=served.url)
    agent_id = new_agent(client)
    http = httpx.Client(base_url=served.url, timeout=10)
    for headers in (FIRST, FIRST, AGAIN):
        http.post(f"/v1/agents/{agent_id}/messages", json={"input": "/say go on"}, headers=headers).raise_for_status()
    assert said_and_run(client, agent_id) == (3, 3)


@pytest.mark.parametrize("count", ["-1", "x", "", "²", "9" * 5000])
def test_a_count_of_tries_that_makes_no_sense_is_no_harm(served: Served, count: str) -> None:
    client = Letta(base_url=served.url)
    agent_id = new_agent(client)
    headers = {b"x-stainless-retry-count": count.encode()}
    answer = httpx.post(f"{served.url}/v1/agents/{agent_id}/messages", json={"input": "/say hi"}, headers=headers)
    assert answer.status_code == 200, answer.text


def test_a_client_of_a_killed_server_gets_its_response_from_the_next_server(database_url: str) -> None:
    with ServerProcess(database_url) as server:
        client = Letta(base_url=server.url, max_retries=6)
        agent_id = new_agent(client)
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(client.agents.messages.create(agent_id, input="/slow 50\n/tokens 30"))
        )
        asking.start()
        watching = Letta(base_url=server.url)
        until(lambda: watching.runs.list(agent_id=agent_id).items)
        server.kill()
        server.start()
        asking.join(30)
        assert [message.content for message in answers[0].messages if message.message_type == "assistant_message"]
        assert said_and_run(Letta(base_url=server.url), agent_id) == (1, 1)


def test_a_client_that_waits_during_a_graceful_shutdown_is_told_the_run_id(database_url: str) -> None:
    with ServerProcess(database_url, HOLDFAST_SHUTDOWN_SECONDS="0.2") as server:
        client = Letta(base_url=server.url)
        agent_id = new_agent(client)
        path, answers = f"{server.url}/v1/agents/{agent_id}/messages", []
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(path, json={"input": "/slow 50\n/tokens 60"}, timeout=30))
        )
        asking.start()
        runs = until(lambda: client.runs.list(agent_id=agent_id).items)
        assert server.stop() == 0
        asking.join(30)
        assert (answers[0].status_code, answers[0].headers["retry-after"]) == (503, "1")
        assert f"POST /v1/runs/{runs[0].id}/stream" in answers[0].json()["detail"]
        assert "Traceback" not in server.log_path.read_text()
        server.start()
        list(Letta(base_url=server.url).runs.messages.stream(runs[0].id))
        assert Letta(base_url=server.url).runs.retrieve(runs[0].id).status == "completed"
