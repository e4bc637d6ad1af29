"""Every time in every response is in one form: UTC, microseconds, `Z`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from clients.test_python_sdk import make_agent
from server_fixture import Served

TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def times_in(value: Any, path: str = "") -> dict[str, str]:
    """Every text of a JSON value that begins like a time, by its path."""
    if isinstance(value, dict):
        return {at: text for key, one in value.items() for at, text in times_in(one, f"{path}.{key}").items()}
    if isinstance(value, list):
        return {at: text for index, one in enumerate(value) for at, text in times_in(one, f"{path}[{index}]").items()}
    return {path: value} if isinstance(value, str) and TIME.match(value) else {}


def test_every_time_in_every_response_has_the_one_form(served: Served) -> None:
    client, agent = make_agent(served)
    conversation = client.conversations.create(agent_id=agent.id)
    list(client.conversations.messages.create(conversation.id, messages=[{"role": "user", "content": "/say one"}]))
    client.agents.passages.create(agent.id, text="kelp")
    http = httpx.Client(base_url=served.url)
    sent = http.post(f"/v1/agents/{agent.id}/messages", json={"input": "call roll_dice with 6"}).json()
    run_id = http.get("/v1/runs/", params={"agent_id": agent.id}).json()[0]["id"]
    paths = [
        f"/v1/agents/{agent.id}?include=agent.tools",
        f"/v1/agents/{agent.id}/messages",
        f"/v1/agents/{agent.id}/context",
        f"/v1/agents/{agent.id}/archival-memory",
        f"/v1/agents/{agent.id}/archival-memory/search?query=kelp",
        f"/v1/conversations/?agent_id={agent.id}",
        f"/v1/runs/{run_id}",
        f"/v1/runs/{run_id}/messages",
        f"/v1/runs/{run_id}/steps",
        f"/v1/runs/{run_id}/trace",
        "/v1/archives/",
        "/v1/providers/",
        "/v1/tools/",
    ]
    shown = {path: http.get(path).raise_for_status().json() for path in paths} | {"sent": sent}
    times = times_in(shown)
    assert any(path.endswith(".completed_at") for path in times)
    assert any(path.endswith(".date") for path in times)
    assert {path: text for path, text in times.items() if not FORM.fullmatch(text)} == {}


def test_the_messages_of_a_fast_turn_are_in_order_by_their_dates(served: Served) -> None:
    client, agent = make_agent(served)
    client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "call roll_dice with 6"}])
    listed = client.agents.messages.list(agent.id, order="asc").items
    assert sorted(listed, key=lambda message: message.date) == listed
    assert len({message.date for message in listed}) > 2


def test_a_run_is_completed_after_it_was_created_and_both_are_in_utc(served: Served) -> None:
    client, agent = make_agent(served)
    client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "/say hi"}])
    [run] = client.runs.list(agent_id=agent.id).items
    assert run.completed_at.utcoffset() == run.created_at.utcoffset() == timedelta(0)
    assert run.created_at <= run.completed_at <= datetime.now(UTC)


@pytest.mark.parametrize("zone", ["Z", "+00:00", ""])
def test_a_conversation_keeps_the_time_of_the_last_message_that_a_client_sets(served: Served, zone: str) -> None:
    client, agent = make_agent(served)
    older, newer = (client.conversations.create(agent_id=agent.id) for _ in range(2))
    changed = client.conversations.update(older.id, last_message_at=f"2031-05-06T07:08:09{zone}")
    moment = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert changed.last_message_at == client.conversations.retrieve(older.id).last_message_at == moment
    listed = client.conversations.list(agent_id=agent.id, order_by="last_message_at")
    assert [one.id for one in listed] == [older.id, newer.id]
    client.conversations.update(older.id, summary="another field changes nothing of it")
    assert client.conversations.retrieve(older.id).last_message_at == moment
