"""Listings of large records are limited in size: shared blocks and tools do not make a response of gigabytes."""

from __future__ import annotations

import httpx
import pytest
from letta_client import Letta

from holdfast.storage.records import agent_reads
from holdfast.storage.sql import paging

LONG = "kelp " * 200
SOURCE = 'def large{n}(a: str) -> str:\n    """D.\n\n    Args:\n        a: A.\n    """\n    return a\n# '


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six large records, two fit on a page."""
    for module in (paging, agent_reads):
        monkeypatch.setattr(module, "MAX_PAGE_CHARS", 3_000)


def make_agents(http: httpx.Client) -> list[str]:
    """Six agents that share a large block and a large tool."""
    block = http.post("/v1/blocks", json={"label": "shared", "value": LONG}).json()["id"]
    tool = http.post("/v1/tools", json={"source_code": SOURCE.format(n=0) + "x" * 200}).json()["id"]
    body = {"model": "demo/rehearsal", "block_ids": [block], "tool_ids": [tool], "include_base_tools": False}
    return [str(http.post("/v1/agents", json=body).raise_for_status().json()["id"]) for _ in range(6)]


def test_a_page_of_agents_with_large_blocks_is_shorter_than_its_limit(http: httpx.Client) -> None:
    made = make_agents(http)
    listed = [agent["id"] for agent in http.get("/v1/agents", params={"order": "asc"}).json()]
    assert 0 < len(listed) < 6
    assert listed == made[: len(listed)]
    before = [agent["id"] for agent in http.get("/v1/agents", params={"order": "asc", "before": made[5]}).json()]
    assert 0 < len(before) < 5
    assert before == made[5 - len(before) : 5]


def test_the_official_client_lists_all_agents_all_the_same(http: httpx.Client, client: Letta) -> None:
    made = make_agents(http)
    assert [agent.id for agent in client.agents.list(order="asc")] == made


@pytest.mark.parametrize("limit", [20, 200])
def test_a_page_of_large_blocks_or_tools_is_shorter_than_its_limit(http: httpx.Client, limit: int) -> None:
    for number in range(6):
        http.post("/v1/blocks", json={"label": f"b{number}", "value": LONG}).raise_for_status()
        http.post("/v1/tools", json={"source_code": SOURCE.format(n=number) + "x" * 1_000}).raise_for_status()
    for path in ("/v1/blocks", "/v1/tools"):
        listed: list[str] = []
        while more := http.get(path, params={"limit": limit, "after": listed[-1] if listed else None}).json():
            assert len(more) < 6
            listed += [record["id"] for record in more]
        assert len(listed) >= 6
        assert len(listed) == len(set(listed))


def test_one_record_is_listed_whatever_its_size(http: httpx.Client) -> None:
    http.post("/v1/blocks", json={"label": "b", "value": LONG * 10, "limit": 10_000}).raise_for_status()
    assert len(http.get("/v1/blocks").json()) == 1
