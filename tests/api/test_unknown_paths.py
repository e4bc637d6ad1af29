"""Paths and methods that no route has: the response says whether the endpoint exists in the Letta API."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from api.conftest import serving
from holdfast.api.app import MODULES
from holdfast.api.unserved_endpoints import rows

ID = "agent-00000000-0000-4000-8000-000000000000"
SERVED = {
    (method, re.sub(r"\{\w+\}", "{}", route.path))
    for module in MODULES
    for route in module.router.routes
    for method in getattr(route, "methods", ())
}
UNSERVED = [row for row in rows() if row not in SERVED]


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("paths")
    with serving(f"sqlite:///{folder}/x.db", folder) as url, httpx.Client(base_url=url, timeout=30) as plain:
        yield plain


def test_every_endpoint_of_the_letta_api_that_is_not_served_says_so(http: httpx.Client) -> None:
    assert len(UNSERVED) > 20
    for method, pattern in UNSERVED:
        path = pattern.replace("{*}", "a/b").replace("{}", ID)
        response = http.request("GET" if method == "*" else method, path)
        assert (response.status_code, response.json()["endpoint"]) == (501, "unsupported"), (method, path)
        assert response.headers["x-should-retry"] == "false"
        assert "Holdfast does not support it" in response.json()["detail"]


def test_the_endpoints_of_the_cloud_are_told_apart(http: httpx.Client) -> None:
    assert "Letta's cloud" in http.get("/v1/environments").json()["detail"]
    assert "Letta's cloud" not in http.get("/v1/groups/").json()["detail"]


@pytest.mark.parametrize("path", ["/v1/nothing-here", "/v1/agents/x/y/z", "/v1/folders/a/b/c/d", f"/v1/agents/{ID}/x"])
def test_a_path_that_no_api_has_says_so(http: httpx.Client, path: str) -> None:
    response = http.get(path)
    assert (response.status_code, response.json()["endpoint"]) == (404, "unknown")
    assert f"GET {path}. /openapi.json" in response.json()["detail"]


def test_a_method_that_no_api_has_names_those_that_there_are(http: httpx.Client) -> None:
    response = http.put(f"/v1/agents/{ID}")
    assert (response.status_code, response.headers["allow"]) == (405, "DELETE, GET, HEAD, PATCH")
    assert f"PUT /v1/agents/{ID}, only DELETE, GET, HEAD, PATCH." in response.json()["detail"]


def test_a_path_outside_the_api_is_not_found(http: httpx.Client) -> None:
    response = http.get("/nothing")
    assert (response.status_code, response.json()) == (404, {"detail": "Not Found"})


def test_a_long_path_is_cut(http: httpx.Client) -> None:
    assert len(http.get(f"/v1/{'a' * 4000}").content) < 500
