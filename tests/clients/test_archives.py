"""Archives and passages through the official SDK, and the tools with which an agent uses them, on both databases."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from letta_client import Letta, NotFoundError, UnprocessableEntityError

from server_fixture import Served


@pytest.fixture
def client(served: Served) -> Letta:
    return served.client()


def agent_of(client: Letta, **given: Any) -> str:
    return client.agents.create(model="demo/rehearsal", include_base_tools=False, **given).id


def texts(found: Any) -> list[str]:
    return [passage.text for passage in found]


# ---- archives -----------------------------------------------------------------------------------------------


def test_an_archive_is_made_read_changed_listed_and_deleted(client: Letta) -> None:
    name = f"archive {uuid.uuid4()}"
    made = client.archives.create(name=name, description="d")
    assert client.archives.retrieve(made.id).description == "d"
    assert client.archives.update(made.id, description="e").name == name
    assert [one.id for one in client.archives.list(name=name)] == [made.id]
    passage = client.archives.passages.create(made.id, text="hello")
    client.archives.delete(made.id)
    with pytest.raises(NotFoundError):
        client.archives.retrieve(made.id)
    assert client.passages.search(query="hello", archive_id=None, tags=[str(passage.id)]) == []


def test_archives_are_paged_newest_first(client: Letta) -> None:
    name = f"archive {uuid.uuid4()}"
    made = [client.archives.create(name=name).id for _ in range(5)]
    assert [one.id for one in client.archives.list(name=name, limit=2)] == list(reversed(made))
    assert [one.id for one in client.archives.list(name=name, limit=2, order="asc")] == made


def test_passages_are_added_one_by_one_and_many_at_once(client: Letta) -> None:
    archive = client.archives.create(name="a")
    one = client.archives.passages.create(archive.id, text="one", tags=["t", "t"], metadata={"k": 1})
    assert (one.archive_id, one.tags, one.metadata) == (archive.id, ["t"], {"k": 1})
    many = client.archives.passages.create_many(archive.id, passages=[{"text": "two"}, {"text": "three"}])
    assert texts(many) == ["two", "three"]
    client.archives.passages.delete(one.id or "", archive_id=archive.id)
    assert {hit.passage.text for hit in client.passages.search(archive_id=archive.id)} == {"two", "three"}
    with pytest.raises(NotFoundError):
        client.archives.passages.delete(one.id or "", archive_id=archive.id)


def test_what_is_not_there_is_not_found_and_nonsense_is_refused(client: Letta) -> None:
    nowhere = f"archive-{uuid.uuid4()}"
    agent = agent_of(client)
    attempts: tuple[Callable[[], object], ...] = (
        lambda: client.archives.passages.create(nowhere, text="x"),
        lambda: client.agents.archives.attach(nowhere, agent_id=agent),
        lambda: client.agents.passages.list(f"agent-{uuid.uuid4()}"),
        lambda: client.agents.passages.delete(f"passage-{uuid.uuid4()}", agent_id=agent),
        lambda: client.passages.search(archive_id=nowhere),
    )
    for attempt in attempts:
        with pytest.raises(NotFoundError):
            attempt()
    for wrong in (
        lambda: client.archives.create(name=""),
        lambda: client.agents.passages.create(agent, text=""),
        lambda: client.passages.search(limit=0),
        lambda: client.archives.retrieve("archive-1"),
    ):
        with pytest.raises(UnprocessableEntityError):
            wrong()


# ---- an agent's ---------------------------------------------------------------------------------------------


def test_an_agents_memory_begins_with_its_first_passage_and_goes_with_the_agent(client: Letta) -> None:
    agent = agent_of(client)
    assert client.agents.passages.list(agent) == []
    [made] = client.agents.passages.create(agent, text="The walrus likes clams", tags=["animals"])
    client.agents.passages.create(agent, text="The crab likes mud")
    assert texts(client.agents.passages.list(agent)) == ["The walrus likes clams", "The crab likes mud"]
    assert texts(client.agents.passages.list(agent, ascending=False, limit=1)) == ["The crab likes mud"]
    assert texts(client.agents.passages.list(agent, search="CLAMS")) == ["The walrus likes clams"]
    assert texts(client.agents.passages.list(agent, after=made.id)) == ["The crab likes mud"]
    [archive] = list(client.archives.list(agent_id=agent))
    assert made.archive_id == archive.id
    client.agents.passages.delete(made.id or "", agent_id=agent)
    assert texts(client.agents.passages.list(agent)) == ["The crab likes mud"]
    client.agents.delete(agent)
    with pytest.raises(NotFoundError):
        client.archives.retrieve(archive.id)


def test_a_shared_archive_is_searched_by_all_and_outlives_each(client: Letta, served: Served) -> None:
    archive = client.archives.create(name="shared")
    one, two = agent_of(client), agent_of(client)
    for agent in (one, two, one):
        client.agents.archives.attach(archive.id, agent_id=agent)
    client.agents.passages.create(one, text="shared knowledge")
    assert texts(client.agents.passages.list(two)) == ["shared knowledge"]
    users = httpx.get(f"{served.url}/v1/archives/{archive.id}/agents").json()
    assert {user["id"] for user in users} == {one, two}
    client.agents.archives.detach(archive.id, agent_id=two)
    assert client.agents.passages.list(two) == []
    client.agents.delete(one)
    assert client.archives.retrieve(archive.id).id == archive.id


def test_an_archive_made_for_one_agent_stays_while_another_uses_it(client: Letta) -> None:
    one, two = agent_of(client), agent_of(client)
    [passage] = client.agents.passages.create(one, text="kept")
    client.agents.archives.attach(passage.archive_id or "", agent_id=two)
    client.agents.delete(one)
    assert texts(client.agents.passages.list(two)) == ["kept"]


# ---- search -------------------------------------------------------------------------------------------------


def test_a_passage_with_more_of_the_words_comes_first(client: Letta) -> None:
    agent = agent_of(client)
    for text in ("The cat sleeps", "The walrus eats clams at noon", "A walrus swims"):
        client.agents.passages.create(agent, text=text)
    found = client.agents.passages.search(agent, query="What does the WALRUS eat at noon?")
    assert found.count == len(found.results)
    assert found.results[0].content == "The walrus eats clams at noon"
    scored = client.passages.search(query="walrus noon", agent_id=agent)
    assert [(hit.passage.text, hit.score) for hit in scored] == [
        ("The walrus eats clams at noon", 1.0),
        ("A walrus swims", 0.5),
    ]
    assert client.agents.passages.search(agent, query="unicorn").results == []
    assert client.agents.passages.search(agent, query="%_'\"").results == []


def test_a_search_is_narrowed_by_tags_and_time(client: Letta) -> None:
    agent = agent_of(client)
    for text, tags, day in (("walrus one", ["a", "b"], 1), ("walrus two", ["a"], 2), ("walrus three", ["c"], 3)):
        client.agents.passages.create(agent, text=text, tags=tags, created_at=datetime(2026, 1, day, tzinfo=UTC))

    def search(**wanted: Any) -> list[str]:
        return [hit.content for hit in client.agents.passages.search(agent, query="walrus", **wanted).results]

    assert search() == ["walrus three", "walrus two", "walrus one"]
    assert search(tags=["a"]) == ["walrus two", "walrus one"]
    assert search(tags=["a", "b"], tag_match_mode="all") == ["walrus one"]
    assert search(tags=["b", "c"]) == ["walrus three", "walrus one"]
    assert search(start_datetime=datetime(2026, 1, 2, tzinfo=UTC)) == ["walrus three", "walrus two"]
    assert search(end_datetime=datetime(2026, 1, 2, tzinfo=UTC), top_k=1) == ["walrus two"]


# ---- the agent's own tools ----------------------------------------------------------------------------------


def test_an_agent_keeps_and_finds_texts_with_its_tools(client: Letta) -> None:
    agent = agent_of(client, tools=["archival_memory_insert", "archival_memory_search"])

    def run(name: str, **arguments: Any) -> str:
        done = client.agents.tools.run(name, agent_id=agent, args=arguments)
        assert done.status == "success", done.func_return
        return str(done.func_return)

    assert run("archival_memory_search", query="walrus") == "Nothing found in long-term memory."
    run("archival_memory_insert", content="The walrus likes clams", tags=["animals"])
    run("archival_memory_insert", content="The crab likes mud")
    found = json.loads(run("archival_memory_search", query="what does the walrus like", tags=["animals"]))
    assert [one["content"] for one in found] == ["The walrus likes clams"]
    assert texts(client.agents.passages.list(agent, search="crab")) == ["The crab likes mud"]
    wrong = client.agents.tools.run("archival_memory_insert", agent_id=agent, args={"content": " "})
    assert wrong.status == "error"


def test_the_model_uses_them_in_a_conversation(client: Letta) -> None:
    agent = agent_of(client, tools=["archival_memory_insert"])
    client.agents.messages.create(agent, input="call archival_memory_insert with 'the tide turns at six'")
    assert texts(client.agents.passages.list(agent)) == ["the tide turns at six"]
