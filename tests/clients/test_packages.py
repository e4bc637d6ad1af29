"""Tools that need packages, through the official SDK: a clear 422, a visible wait at the first call, a working tool."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from letta_client import Letta, UnprocessableEntityError

from holdfast.testing.server import ServerProcess
from wheels import wheel

TOOL = '''
def tide() -> str:
    """When the tide turns."""
    import tides
    return tides.turn()
'''


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Letta]:
    with tempfile.TemporaryDirectory(prefix="holdfast-index-") as name:
        index = Path(name)
        index.chmod(0o755)
        wheel(index, "tides", "1.0", "def turn():\n    return 'at six'\n")
        database = f"sqlite:///{tmp_path_factory.mktemp('packages')}/holdfast.db"
        with ServerProcess(database, HOLDFAST_PACKAGE_INDEX=index.as_uri()) as server:
            yield Letta(base_url=server.url, max_retries=0)


def agent_with(client: Letta, **tool: Any) -> str:
    made = client.tools.upsert(source_code=TOOL, **tool)
    return client.agents.create(model="demo/rehearsal", tool_ids=[made.id], include_base_tools=False).id


def test_the_first_call_waits_with_a_word_about_it_and_the_next_does_not(client: Letta) -> None:
    agent = agent_with(client, pip_requirements=[{"name": "tides", "version": "1.0"}])
    for expected in (["Installing tides==1.0 for the tool tide"], []):
        chunks = list(client.agents.messages.create(agent, input="call tide", streaming=True))
        details = [getattr(chunk, "detail", None) for chunk in chunks if chunk.message_type == "ping"]
        assert [text for text in details if text] == expected
        returned = [chunk for chunk in chunks if chunk.message_type == "tool_return_message"]
        assert [one.tool_return for one in returned] == ["at six"]
        numbers = [number for chunk in chunks if (number := getattr(chunk, "seq_id", None))]
        assert numbers == sorted(set(numbers))


def test_a_package_that_does_not_exist_is_a_clear_error_of_the_call(client: Letta) -> None:
    agent = agent_with(client, pip_requirements=[{"name": "nonesuch"}])
    done = client.agents.tools.run("tide", agent_id=agent)
    assert done.status == "error"
    assert "nonesuch could not be installed" in str(done.func_return)


@pytest.mark.parametrize(
    "name", ["--index-url=http://evil.test", "git+https://evil.test/x", "../x", "a; rm -rf /", "x @ http://evil.test/x"]
)
def test_a_requirement_that_is_more_than_a_package_is_a_422(client: Letta, name: str) -> None:
    for attempt in (client.tools.create, client.tools.upsert):
        with pytest.raises(UnprocessableEntityError, match=r"requirement|address|marker"):
            attempt(source_code=TOOL.replace("tide()", "evil()"), pip_requirements=[{"name": name}])
    assert list(client.tools.list(name="evil")) == []
    kept = client.tools.upsert(source_code=TOOL)
    with pytest.raises(UnprocessableEntityError):
        client.tools.update(kept.id, pip_requirements=[{"name": name}])
