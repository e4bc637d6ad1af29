"""Create, list, change and delete memory blocks over HTTP."""

from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, Letta, NotFoundError

MODEL = "demo/rehearsal"


def test_a_block_gets_a_limit_and_known_labels_a_description(client: Letta) -> None:
    human = client.blocks.create(label="human", value="")
    other = client.blocks.create(label="other", value="v", tags=["a"], metadata={"k": 1})
    assert (human.limit, human.is_template, human.read_only) == (100_000, False, False)
    assert human.description
    assert other.description is None
    assert client.blocks.retrieve(other.id) == other


def test_a_change_touches_only_what_it_names(client: Letta) -> None:
    block = client.blocks.create(label="human", value="x", metadata={"k": 1})
    changed = client.blocks.update(block.id, value="y", read_only=True, description=None)
    assert (changed.value, changed.read_only, changed.label) == ("y", True, "human")
    assert (changed.description, changed.metadata) == (block.description, {"k": 1})


def test_a_new_block_may_exceed_its_limit_but_a_change_may_not(client: Letta) -> None:
    block = client.blocks.create(label="b", value="12345", limit=3)
    assert client.blocks.update(block.id, description="d").value == "12345"
    with pytest.raises(APIStatusError, match=r"Exceeds 3 character limit \(requested 4\)") as refusal:
        client.blocks.update(block.id, value="1234")
    assert refusal.value.status_code == 400
    assert client.blocks.retrieve(block.id).value == "12345"
    assert client.blocks.update(block.id, value="1234", limit=4).value == "1234"


def test_blocks_are_listed_oldest_first_and_paged(client: Letta) -> None:
    made = [client.blocks.create(label=f"b{n}", value="v").id for n in range(5)]
    assert [block.id for block in client.blocks.list(limit=2)] == made
    assert [block.id for block in client.blocks.list(limit=2, order="desc")] == made[::-1]


def test_blocks_are_listed_by_every_filter(client: Letta, http: httpx.Client) -> None:
    client.blocks.create(label="one", value="Apples", tags=["x", "y"], project_id="p")
    client.blocks.create(label="two", value="100% pears", tags=["x"], description="fruit")
    client.blocks.create(label="three", value="v", is_template=True, template_name="kept", hidden=False)
    client.blocks.create(label="secret", value="v", hidden=True)

    def labels(**wanted: Any) -> list[str]:
        return [block.label or "" for block in client.blocks.list(**wanted)]

    assert labels() == ["one", "two", "three"]
    assert labels(label="one") == ["one"]
    assert labels(name="kept") == labels(templates_only=True) == ["three"]
    assert labels(tags=["x", "y"]) == ["one", "two"]
    assert labels(tags=["x", "y"], match_all_tags=True) == ["one"]
    assert labels(project_id="p") == labels(value_search="apple") == ["one"]
    assert labels(value_search="0%") == labels(description_search="FRU") == ["two"]
    assert labels(label_search="t") == ["two", "three"]
    assert labels(identity_id="identity-00000000-0000-4000-8000-000000000000") == ["one", "two", "three"]
    assert http.get("/v1/blocks/count", params={"tags": ["x"]}).json() == 2


def test_blocks_are_listed_by_how_many_agents_have_them(client: Letta) -> None:
    free, once, twice = (client.blocks.create(label=label, value="v") for label in ("free", "once", "twice"))
    client.agents.create(model=MODEL, block_ids=[once.id, twice.id])
    client.agents.create(model=MODEL, block_ids=[twice.id])

    def ids(**wanted: Any) -> set[str]:
        return {block.id for block in client.blocks.list(**wanted)}

    assert ids(connected_to_agents_count_gt=0) == {once.id, twice.id}
    assert ids(connected_to_agents_count_lt=1) == {free.id}
    assert ids(connected_to_agents_count_eq=[0, 2]) == {free.id, twice.id}


def test_a_block_knows_its_agents(client: Letta) -> None:
    block = client.blocks.create(label="shared", value="v")
    agents = [client.agents.create(model=MODEL, block_ids=[block.id]).id for _ in range(3)]
    client.agents.create(model=MODEL)
    assert [agent.id for agent in client.blocks.agents.list(block.id, limit=2)] == agents[::-1]


def test_a_deleted_block_is_gone_from_its_agents(client: Letta) -> None:
    agent = client.agents.create(model=MODEL, memory_blocks=[{"label": "human", "value": "x"}])
    block_id = str(agent.blocks[0].id)
    assert client.blocks.delete(block_id) is None
    assert list(client.agents.blocks.list(agent.id)) == []
    for call in (client.blocks.retrieve, client.blocks.delete, client.blocks.agents.list):
        with pytest.raises(NotFoundError, match=f"Block with id '{block_id}' not found"):
            call(block_id)


@pytest.mark.parametrize("body", [{}, {"label": "x"}, {"label": "", "value": "v"}, {"label": "x", "value": "\x00"}])
def test_a_block_without_label_or_value_is_refused(http: httpx.Client, body: dict[str, Any]) -> None:
    assert http.post("/v1/blocks/", json=body).status_code == 422
    assert http.get("/v1/blocks/count").json() == 0
