"""Every route of `openapi.json`: without the password it refuses before it reads a body, and it shows and changes
nothing of another organization. And texts that are code to a database are only texts.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, insert, select, update

import holdfast
from api.conftest import serving
from api.test_fuzz import world
from fuzzing import PATH_PARAMETER, Route, routes_of
from holdfast.storage.schema.record_tables import metadata, organizations
from holdfast.storage.sql.database import make_engine

OPEN = {"/v1/health", "/v1/ready"}
ENDLESS = "/v1/approvals/stream"  # waits for what is announced from now on
OTHER = "org-00000000-0000-4000-8000-0000000000ff"


def routes(http: httpx.Client) -> list[Route]:
    return routes_of(http.get("/openapi.json").json())


# ---- without the password -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("locked")
    with (
        serving(f"sqlite:///{folder}/x.db", folder, HOLDFAST_PASSWORD="sesame") as url,
        httpx.Client(base_url=url, timeout=30) as http,
    ):
        yield http


@pytest.mark.parametrize("credential", ["", "authorization: Bearer x\r\n", "authorization: Basic sesame\r\n"])
def test_a_request_without_the_password_is_refused_before_its_body_is_read(
    locked: httpx.Client, credential: str
) -> None:
    found = routes(locked)
    assert len(found) > 100
    for route in found:
        if route.path.rstrip("/") in OPEN:
            continue
        path = PATH_PARAMETER.sub("agent-00000000-0000-4000-8000-000000000000", route.path)
        with socket.create_connection((locked.base_url.host, locked.base_url.port or 0), timeout=10) as connection:
            head = f"{route.method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n{credential}\r\n"
            connection.sendall(head.encode())  # the body never comes
            status = connection.recv(1000).split()[1]
        assert status == b"401", (route.method, path, status)


# ---- of another organization ----------------------------------------------------------------------------------------


def give_away(engine: Engine) -> None:
    """Make another organization the owner of every record."""
    with engine.begin() as connection:
        row = connection.execute(select(organizations)).mappings().one()
        connection.execute(insert(organizations).values({**row, "id": OTHER}))
        for table in metadata.sorted_tables:
            if "org_id" in table.c:
                connection.execute(update(table).values(org_id=OTHER))


def everything(engine: Engine) -> dict[str, list[Any]]:
    with engine.connect() as connection:
        owned = [table for table in metadata.sorted_tables if "org_id" in table.c]
        return {
            table.name: sorted(map(repr, connection.execute(select(table).where(table.c.org_id == OTHER))))
            for table in owned
        }


def paths(route: Route, known: dict[str, list[str]]) -> list[str]:
    """The route with each of the known ids in turn."""
    names = PATH_PARAMETER.findall(route.path)
    if not all(name in known for name in names):
        return []
    most = max((len(known[name]) for name in names), default=1)

    def path(number: int) -> str:
        return PATH_PARAMETER.sub(lambda found: known[found[1]][number % len(known[found[1]])], route.path)

    return [path(number) for number in range(most)]


@pytest.mark.parametrize("headers", [{}, {"user_id": "user-00000000-0000-4000-8000-000000000001"}])
def test_no_route_shows_or_changes_a_record_of_another_organization(
    http: httpx.Client, database_url: str, headers: dict[str, str]
) -> None:
    known = world(http)
    del known["provider_id"], known["provider_ids"]  # the server's own
    known["conversation_id"] = known["conversation_id"][:1]  # the others are no ids of conversations
    engine = make_engine(database_url)
    give_away(engine)
    before = everything(engine)
    ids = {one for found in known.values() for one in found if "-" in one}
    wrong: list[str] = []
    for route in routes(http):
        if route.path == ENDLESS:
            continue
        for path in paths(route, known):
            response = http.request(route.method, path, params={"query": "t"}, json={}, headers=headers)
            if path != route.path:
                refused = (400, 404) if route.method in ("GET", "DELETE") else (400, 404, 405, 409, 422)
                if response.status_code not in refused:
                    wrong.append(f"{response.status_code}: {route.method} {path}: {response.text[:300]}")
            elif response.status_code < 300 and any(one in response.text for one in ids):
                wrong.append(f"{route.method} {path}: {response.text[:300]}")
    assert wrong == []
    assert everything(engine) == before
    engine.dispose()


# ---- texts that are code to others ----------------------------------------------------------------------------------

CODE = ("' OR 1=1 --", "x' OR 'a'='a", "%", "_", "%%", "$.*", '"$[0]"', "'; DROP TABLE agents; --", "\\", "NULL")


@pytest.mark.parametrize("text", CODE)
def test_a_text_that_is_code_to_a_database_finds_only_itself(http: httpx.Client, text: str) -> None:
    made = http.post("/v1/agents/", json={"model": "demo/rehearsal", "name": "plain", "tags": ["plain"]}).json()
    http.post(f"/v1/agents/{made['id']}/messages", json={"input": "hello"}).raise_for_status()
    for path, names in (
        ("/v1/agents/", ("name", "query_text", "tags", "identity_id", "project_id", "last_stop_reason", "after")),
        ("/v1/blocks/", ("name", "label", "label_search", "value_search", "description_search", "after")),
        ("/v1/tools/", ("name", "names", "search", "after")),
        ("/v1/runs/", ("agent_id", "statuses", "stop_reason", "tools_used", "after")),
    ):
        whole = len(http.get(path).json())
        for name in names:
            response = http.get(path, params={name: text})
            assert response.status_code in (200, 400, 404, 422), (path, name, response.text)
            if response.status_code == 200 and name in ("name", "query_text", "tags", "label", "identity_id"):
                assert response.json() == [], (path, name)
        assert http.get(path, params={"order_by": text}).status_code in (200, 400, 422)
        assert len(http.get(path).json()) == whole
    for path in ("/v1/messages/search", "/v1/passages/search", "/v1/tools/search"):
        found = http.post(path, json={"query": text})
        assert found.status_code == 200, (path, found.text)
        assert "hello" not in found.text


def test_nothing_of_the_server_reads_data_that_could_be_code() -> None:
    forbidden = re.compile(
        r"^\s*(?:import|from) (?:pickle|marshal|shelve|yaml|dill|cloudpickle|joblib)\b", re.MULTILINE
    )
    sources = Path(holdfast.__file__).parent.rglob("*.py")
    assert [path for path in sources if forbidden.search(path.read_text())] == []
