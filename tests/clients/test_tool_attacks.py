"""Attacks with code where data is expected: in a tool's arguments, and in a source when it is registered.

Each would create a file on the server's disk if any of it were executed. They run against a server with its default
settings (tier A, where the machine allows it) and against one of an ordinary user without namespaces (tier B).
Attacks by package requirements are in tests/tools/test_environments.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import Letta

import denied
from denied import SOMEBODY
from server_fixture import StartedAnew


@pytest.fixture
def mark() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-mark-") as name:
        Path(name).chmod(0o777)
        yield Path(name) / "mark"


class ServerWithoutNamespaces(StartedAnew):
    """A server as in a plain container, run by an unprivileged user."""

    def _argv(self) -> list[str]:
        return denied.argv("from holdfast.cli import main; raise SystemExit(main())", "unshare", SOMEBODY, self.command)


@pytest.fixture(scope="module", params=["as it comes", "B"])
def server(request: pytest.FixtureRequest) -> Iterator[StartedAnew]:
    with tempfile.TemporaryDirectory(prefix="holdfast-attacked-") as name:
        place = Path(name)
        url = f"sqlite:///{place}/holdfast.db"
        if request.param == "B":
            if os.getuid() == 0:
                os.chown(place, SOMEBODY, SOMEBODY)
            made: StartedAnew = ServerWithoutNamespaces(url, place, **denied.environment())
        else:
            made = StartedAnew(url, place)
        with made as started:
            yield started


@pytest.fixture
def client(server: StartedAnew) -> Letta:
    return Letta(base_url=server.url, max_retries=0)


SOURCE = '''
def total(numbers: list[int], options: dict, limit: int = 3) -> str:
    """Add numbers up.

    Args:
        numbers: What to add.
        options: How.
        limit: How many at most.
    """
    return str(sum(numbers[:limit]))
'''


def run(client: Letta, arguments: dict[str, Any]) -> Any:
    tool = client.tools.upsert(source_code=SOURCE)
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False)
    return client.agents.tools.run("total", agent_id=agent.id, args=arguments)


def test_the_tool_itself_works(client: Letta, server: StartedAnew) -> None:
    done = run(client, {"numbers": [1, 2], "options": {}})
    assert done.func_return == "3"
    tier = httpx.get(f"{server.url}/v1/health").json()["tools"]["tier"]
    assert tier == "B" or not isinstance(server, ServerWithoutNamespaces)


@pytest.mark.parametrize("parameter", ["numbers", "options", "limit"])
def test_22_a_string_with_code_for_another_type_is_a_schema_error(client: Letta, mark: Path, parameter: str) -> None:
    code = f"__import__('pathlib').Path({str(mark)!r}).touch() or [1]"
    done = run(client, {"numbers": [1], "options": {}, parameter: code})
    assert done.status == "error"
    assert f"{parameter} must be of type" in done.func_return
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    ["x=__import__('os').abort()", "__class__", "self", "limit\n", "numbers); import os; os.abort(", "", "**options"],
)
def test_23_an_argument_name_with_code_is_a_schema_error(client: Letta, name: str) -> None:
    done = run(client, {"numbers": [1], "options": {}, name: 1})
    assert done.status == "error"
    assert "do not fit the tool's schema" in done.func_return
    assert run(client, {"numbers": [1], "options": {}}).status == "success"


TOUCH = "__import__('pathlib').Path({mark!r}).touch()"
PLAIN = 'def f() -> str:\n    """F."""\n    return ""\n'
WITH_A = '{before}def f(a: {kind}) -> str:\n    """F.\n\n    Args:\n        a: A.\n    """\n    return ""\n'
ATTACKS = {
    "decorator": "@{touch}\n" + PLAIN,
    "default value": WITH_A.format(before="", kind="int = {touch} or 1"),
    "annotation": WITH_A.format(before="", kind="{touch}"),
    "return annotation": PLAIN.replace("str", "{touch}"),
    "module level": "{touch}\n\n" + PLAIN,
    "class body": WITH_A.format(before="class A:\n    {touch}\n\n", kind="A"),
    "model field": WITH_A.format(
        before="from pydantic import BaseModel\n\nclass A(BaseModel):\n    x: {touch}\n\n", kind="A"
    ),
    "docstring": 'def f() -> str:\n    f"""{ {touch} }"""\n    return ""\n',
}


@pytest.mark.parametrize("place", ATTACKS)
def test_24_code_in_a_source_is_read_at_registration_and_never_executed(
    server: StartedAnew, mark: Path, place: str
) -> None:
    source = ATTACKS[place].replace("{touch}", TOUCH.replace("{mark!r}", repr(str(mark))))
    assert str(mark) in source
    answers = [
        httpx.post(f"{server.url}/v1/tools/", json={"source_code": source}),
        httpx.put(f"{server.url}/v1/tools/", json={"source_code": source}),
        httpx.post(f"{server.url}/v1/tools/generate-schema", json={"code": source}),
    ]
    assert {answer.status_code for answer in answers} <= {200, 400, 422}
    assert not mark.exists()
