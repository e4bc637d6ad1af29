"""A response names the query parameters and body fields of its request that the endpoint does not know."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from api.conftest import serving

HEADER = "holdfast-ignored"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("ignored")
    with serving(f"sqlite:///{folder}/x.db", folder) as url, httpx.Client(base_url=url, timeout=30) as plain:
        yield plain


@pytest.fixture(scope="module")
def agent(http: httpx.Client) -> str:
    made = http.post("/v1/agents/", json={"model": "demo/rehearsal", "include_base_tools": False})
    assert HEADER not in made.headers
    return f"/v1/agents/{made.json()['id']}"


def test_unknown_query_parameters_are_named(http: httpx.Client, agent: str) -> None:
    response = http.get("/v1/agents/?limit=1&colour=red&tags=a&tags=b&size")
    assert (response.status_code, response.headers[HEADER]) == (200, "colour, size")
    assert HEADER not in http.get("/v1/agents/?limit=1&tags=a").headers
    assert http.get(f"{agent}/context?deep=yes").headers[HEADER] == "deep"
    assert http.get("/v1/tools/count?x=1").headers[HEADER] == "x"


def test_unknown_body_fields_are_named_also_by_routes_without_query_parameters(http: httpx.Client, agent: str) -> None:
    response = http.post(f"{agent}/messages?fast=1", json={"input": "/say hi", "tone": "kind", "mood": 1})
    assert (response.status_code, response.headers[HEADER]) == (200, "fast, mood, tone")
    stream = http.post(f"{agent}/messages/stream", json={"input": "/say hi", "tone": "kind"})
    assert (stream.headers[HEADER], stream.text.endswith("[DONE]\n\n")) == ("tone", True)
    assert HEADER not in http.post(f"{agent}/messages", json={"input": "/say hi", "system": "Be brief."}).headers


def test_fields_known_by_another_name_are_not_named(http: httpx.Client) -> None:
    source = 'def add(a: int) -> int:\n    """Add.\n\n    Args:\n        a: A.\n    """\n    return a\n'
    for name in ("metadata", "metadata_"):
        assert HEADER not in http.put("/v1/tools/", json={"source_code": source, name: {"a": 1}}).headers
    assert http.put("/v1/tools/", json={"source_code": source, "meta": 1}).headers[HEADER] == "meta"


def test_odd_names_cannot_break_the_header(http: httpx.Client) -> None:
    response = http.get("/v1/agents/", params={"a\r\nx: y": "1", "é,": "2", "n" * 300: "3"})
    assert response.headers[HEADER] == f"a%0D%0Ax%3A%20y, {'n' * 64}, %C3%A9%2C"
    assert "x" not in response.headers
    many = http.post("/v1/blocks/", content=json.dumps({"label": "l", "value": "v"} | {f"f{n}": n for n in range(99)}))
    assert many.status_code == 415
    body = {"label": "l", "value": "v"} | {f"f{n:02}": n for n in range(99)}
    assert http.post("/v1/blocks/", json=body).headers[HEADER].endswith("f19, ...")
