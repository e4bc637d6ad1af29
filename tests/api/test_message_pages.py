"""A page of messages is limited in size too, says so, and the next one goes on where it ended."""

from __future__ import annotations

import httpx
import pytest
from letta_client import Letta

from holdfast.storage.records import history_store

TEXTS = [f"{number} " + "kelp " * 100 for number in range(6)]


@pytest.fixture
def agent_id(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> str:
    """An agent with six messages of which two fit on a page."""
    monkeypatch.setattr(history_store, "MAX_PAGE_CHARS", 1_600)
    made: str = http.post("/v1/agents", json={"model": "demo/rehearsal"}).json()["id"]
    for text in TEXTS:
        http.post(f"/v1/agents/{made}/messages", json={"input": f"/say {text}"}).raise_for_status()
    return made


def test_a_page_that_would_be_too_large_is_shorter_and_says_so(http: httpx.Client, agent_id: str) -> None:
    cut = http.get(f"/v1/agents/{agent_id}/messages", params={"limit": 100})
    assert cut.headers["holdfast-page-cut"] == "size"
    assert 0 < len(cut.json()) < 6
    whole = http.get(f"/v1/agents/{agent_id}/messages", params={"limit": 1})
    assert "holdfast-page-cut" not in whole.headers


def test_one_message_is_listed_whatever_its_size(
    http: httpx.Client, agent_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_store, "MAX_PAGE_CHARS", 10)
    listed = http.get(f"/v1/agents/{agent_id}/messages", params={"limit": 100, "order": "asc"})
    assert len(listed.json()) == 1


@pytest.mark.usefixtures("http")
def test_the_official_client_lists_all_messages_all_the_same(client: Letta, agent_id: str) -> None:
    listed = list(client.agents.messages.list(agent_id, limit=100, order="asc"))
    users = [message.content for message in listed if message.message_type == "user_message"]
    assert users == [f"/say {text}" for text in TEXTS]
