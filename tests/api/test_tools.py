"""Create tools from source over HTTP, replace them by name, list, change and delete them."""

from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, ConflictError, Letta, NotFoundError
from sqlalchemy import select, update

from holdfast.core.records import BUILT_IN_TYPES
from holdfast.storage.schema.record_tables import tools
from holdfast.storage.sql.database import make_engine

BASE_TYPES = sorted(BUILT_IN_TYPES)
SOURCE = '''
def greet(name: str, times: int = 1) -> str:
    """Greet somebody.

    Args:
        name: Whom to greet.
        times: How often.
    """
    return "hello " + name
'''
NO_TOOL = "tool-00000000-0000-4000-8000-000000000000"


def test_a_tool_is_read_from_its_source(client: Letta) -> None:
    tool = client.tools.create(source_code=SOURCE, tags=["t"])
    assert (tool.name, tool.description, tool.tool_type, tool.tags) == ("greet", "Greet somebody.", "custom", ["t"])
    assert tool.source_type == "json"
    assert tool.json_schema is not None
    parameters: Any = tool.json_schema["parameters"]
    assert parameters["required"] == ["name"]
    assert parameters["properties"]["times"]["type"] == "integer"
    assert client.tools.retrieve(tool.id) == tool


def test_the_metadata_key_of_a_tool_has_an_underscore(http: httpx.Client) -> None:
    made = http.post("/v1/tools/", json={"source_code": SOURCE}).json()
    changed = http.patch(f"/v1/tools/{made['id']}", json={"metadata_": {"k": 1}}).json()
    assert changed["metadata_"] == {"k": 1}


def test_a_schema_that_was_sent_wins_over_the_source(client: Letta) -> None:
    schema: dict[str, object] = {
        "name": "salute",
        "description": "d",
        "parameters": {"type": "object", "properties": {}},
    }
    tool = client.tools.create(source_code="def x(a): pass", json_schema=schema)
    assert (tool.name, tool.description, tool.json_schema) == ("salute", "d", schema)


def test_a_schema_of_the_arguments_needs_no_type_hints(client: Letta) -> None:
    arguments: dict[str, object] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    source = 'def plain(a):\n    """Do it."""\n'
    tool = client.tools.create(source_code=source, args_json_schema=arguments)
    assert (tool.name, tool.description) == ("plain", "Do it.")
    assert tool.json_schema is not None
    assert tool.json_schema["parameters"]["required"] == ["a"]  # type: ignore[index]


def test_making_a_tool_again_changes_it_and_keeps_its_id(client: Letta) -> None:
    first = client.tools.create(source_code=SOURCE, tags=["t"], default_requires_approval=True)
    again = client.tools.create(source_code=SOURCE.replace("Greet somebody.", "Say hello."))
    upserted = client.tools.upsert(source_code=SOURCE, return_char_limit=7)
    assert first.id == again.id == upserted.id
    assert again.description == "Say hello."
    assert (again.tags, again.default_requires_approval) == (["t"], True)
    assert upserted.return_char_limit == 7
    assert len(client.tools.list(exclude_tool_types=BASE_TYPES).items) == 1


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def broken(:", "syntax error"),
        ("x = 1", "no function"),
        ("def f(a: str):\n    pass", "no description"),
        ('def f(a):\n    """D."""', "has no type hint"),
    ],
)
def test_a_source_that_says_nothing_is_refused(client: Letta, source: str, text: str) -> None:
    with pytest.raises(APIStatusError, match=text) as refusal:
        client.tools.create(source_code=source)
    assert refusal.value.status_code == 400
    assert client.tools.list(exclude_tool_types=BASE_TYPES).items == []


def test_a_change_of_source_is_read_again_and_may_rename(client: Letta) -> None:
    tool = client.tools.create(source_code=SOURCE)
    assert client.tools.update(tool.id, description="Other").json_schema["description"] == "Other"  # type: ignore[index]
    renamed = client.tools.update(tool.id, source_code=SOURCE.replace("greet", "welcome"))
    assert (renamed.id, renamed.name, renamed.description) == (tool.id, "welcome", "Greet somebody.")
    client.tools.create(source_code=SOURCE)
    with pytest.raises(ConflictError, match="A tool named greet exists already"):
        client.tools.update(tool.id, source_code=SOURCE)
    assert client.tools.retrieve(tool.id).name == "welcome"


@pytest.mark.parametrize("by", ["source", "schema"])
def test_a_tool_that_an_agent_has_is_not_renamed(client: Letta, http: httpx.Client, by: str) -> None:
    """An approval rule names the tool: under another name it would run without approval."""
    tool = client.tools.create(source_code=SOURCE, default_requires_approval=True)
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False)
    schema = {"name": "welcome", "parameters": {"type": "object", "properties": {}}}
    change = {"source": {"source_code": SOURCE.replace("greet", "welcome")}, "schema": {"json_schema": schema}}[by]
    refused = http.patch(f"/v1/tools/{tool.id}", json=change)
    assert refused.status_code == 409
    assert "greet is attached to 1 agent" in refused.json()["detail"]
    client.tools.update(tool.id, source_code=SOURCE.replace("Greet", "Salute"))
    assert client.tools.retrieve(tool.id).name == "greet"
    client.agents.tools.detach(tool.id, agent_id=agent.id)
    assert http.patch(f"/v1/tools/{tool.id}", json=change).json()["name"] == "welcome"
    client.agents.tools.attach(tool.id, agent_id=agent.id)
    rules = http.get(f"/v1/agents/{agent.id}").json()["tool_rules"]
    assert ("requires_approval", "welcome") in {(rule["type"], rule["tool_name"]) for rule in rules}


def test_a_tool_of_one_s_own_replaces_no_base_tool(client: Letta, http: httpx.Client) -> None:
    base = {tool["name"]: tool for tool in http.post("/v1/tools/add-base-tools").json()}
    for name in ("memory", "run_code"):
        with pytest.raises(ConflictError, match=f"{name} is the name of a tool that is not made from source"):
            client.tools.create(source_code=SOURCE.replace("greet", name))
        assert http.get(f"/v1/tools/{base[name]['id']}").json() == base[name]
    client.tools.delete(base["run_code"]["id"])
    assert client.tools.create(source_code=SOURCE.replace("greet", "run_code")).tool_type == "custom"


def test_base_tools_are_added_once_and_keep_their_ids(client: Letta, http: httpx.Client) -> None:
    first = http.post("/v1/tools/add-base-tools").json()
    again = http.post("/v1/tools/add-base-tools").json()
    types = {tool["name"]: tool["tool_type"] for tool in first}
    assert [tool["id"] for tool in first] == [tool["id"] for tool in again]
    assert types["conversation_search"] == "letta_core"
    assert types["memory_insert"] == "letta_sleeptime_core"
    assert types["web_search"] == "letta_builtin"
    assert all(tool["default_requires_approval"] is None for tool in first)
    insert = next(tool for tool in first if tool["name"] == "memory_insert")
    with pytest.raises(APIStatusError, match="was not made from source"):
        client.tools.update(insert["id"], source_code=SOURCE)
    assert client.tools.update(insert["id"], default_requires_approval=True).default_requires_approval is True


def test_a_tool_of_one_s_own_replaces_a_base_tool_that_cannot_run_here(client: Letta) -> None:
    [base] = client.tools.list(name="search_memory").items
    own = client.tools.create(source_code=SOURCE.replace("greet", "search_memory"))
    assert (own.id, own.tool_type, own.tags) == (base.id, "custom", [])
    assert len(client.tools.list(name="search_memory").items) == 1


def test_a_tool_of_one_s_own_is_never_overwritten_by_a_base_tool(client: Letta, http: httpx.Client) -> None:
    own = client.tools.create(source_code=SOURCE.replace("greet", "web_search"))
    added = http.post("/v1/tools/add-base-tools").json()
    assert own.id in {tool["id"] for tool in added}
    assert client.tools.retrieve(own.id).tool_type == "custom"


def test_tools_are_listed_by_every_filter(client: Letta, http: httpx.Client) -> None:
    greet = client.tools.create(source_code=SOURCE)
    http.post("/v1/tools/add-base-tools")

    def names(**wanted: Any) -> list[str]:
        return sorted(tool.name or "" for tool in client.tools.list(**wanted))

    assert names(name="greet") == ["greet"]
    assert names(names=["greet", "run_code", "nobody"]) == ["greet", "run_code"]
    assert names(tool_ids=[greet.id]) == ["greet"]
    assert names(search="GREET SOMEB") == ["greet"]
    assert names(tool_types=["letta_builtin"]) == [
        "fetch_webpage",
        "run_code",
        "run_code_with_tools",
        "web_search",
    ]
    assert "greet" not in names(return_only_letta_tools=True)
    assert names(exclude_tool_types=BASE_TYPES) == ["greet"]
    assert http.get("/v1/tools/count", params={"exclude_letta_tools": True}).json() == 1
    assert len(names(limit=3)) == http.get("/v1/tools/count").json() == 27


def test_a_deleted_tool_is_gone_from_its_agents(client: Letta) -> None:
    tool = client.tools.create(source_code=SOURCE)
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False)
    assert client.tools.delete(tool.id) is None
    assert list(client.agents.tools.list(agent.id)) == []
    with pytest.raises(NotFoundError):
        client.tools.retrieve(tool.id)
    with pytest.raises(APIStatusError) as refusal:
        client.tools.delete(tool.id)
    assert refusal.value.status_code == 400


def test_a_base_tool_of_an_earlier_version_takes_the_arguments_of_this_one(
    http: httpx.Client, database_url: str
) -> None:
    http.post("/v1/tools/add-base-tools")
    engine = make_engine(database_url)
    with engine.begin() as connection:
        row = connection.execute(select(tools.c.document).where(tools.c.name == "memory")).scalar_one()
        older = {**row, "json_schema": {"name": "memory", "parameters": {"type": "object", "properties": {}}}}
        connection.execute(update(tools).where(tools.c.name == "memory").values(document=older))
    engine.dispose()
    again = {tool["name"]: tool for tool in http.post("/v1/tools/add-base-tools").json()}
    assert "path" in again["memory"]["json_schema"]["parameters"]["properties"]
    assert http.get("/v1/tools", params={"name": "memory"}).json() == [again["memory"]]
