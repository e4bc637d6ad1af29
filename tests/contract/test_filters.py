"""List filters take repeated values and values with commas between them; the limits have the contract's maxima."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from letta_client import BadRequestError, UnprocessableEntityError

from clients.test_python_sdk import make_agent
from server_fixture import Served


def names(client: Any, **wanted: Any) -> set[str]:
    return {tool.name for tool in client.tools.list(limit=100, **wanted)}


def test_filters_of_tools_take_commas_and_repeats(served: Served) -> None:
    client, _ = make_agent(served)
    [search] = client.tools.list(name="web_search").items
    [dice] = client.tools.list(name="roll_dice").items
    both = {"web_search", "roll_dice"}
    for ids in ([f"{search.id},{dice.id}"], [search.id, dice.id], [f" {search.id} , {dice.id},"]):
        assert names(client, tool_ids=ids) == both
    repeated = names(client, tool_types=["custom", "letta_core"])
    assert names(client, tool_types=["custom,letta_core"]) == repeated > {"roll_dice", "send_message"}
    assert names(client, exclude_tool_types=["custom,letta_core"]).isdisjoint(repeated)
    http = httpx.Client(base_url=served.url)
    counted = http.get("/v1/tools/count", params={"tool_types": "custom,letta_core"}).json()
    assert counted == len(repeated)
    assert names(client, names=["web_search,roll_dice"]) == set()  # a name is taken as it is


@pytest.mark.parametrize("parameter", ["tool_types", "exclude_tool_types"])
def test_an_unknown_type_of_tool_is_refused(served: Served, parameter: str) -> None:
    with pytest.raises(BadRequestError, match=r"Invalid tool_type 'zz'\. Must be one of: custom, letta_"):
        served.client().tools.list(**{parameter: ["custom,zz"]})  # type: ignore[arg-type]


def test_limits_have_the_maxima_of_the_contract(served: Served) -> None:
    client, agent = make_agent(served)
    client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "/say hi"}])
    [run] = client.runs.list(agent_id=agent.id, limit=1000).items
    assert client.runs.trace.retrieve(run.id, limit=5000) != []
    assert client.messages.search(query="hi", search_mode="fts", agent_id=agent.id, limit=100) != []
    refused: list[Any] = [
        lambda: client.runs.list(limit=1001),
        lambda: client.runs.trace.retrieve(run.id, limit=5001),
        lambda: client.messages.search(query="hi", limit=101),
        lambda: client.passages.search(query="hi", limit=101),
        lambda: client.tools.search(query="hi", limit=101),
    ]
    for ask in refused:
        with pytest.raises(UnprocessableEntityError):
            ask()
