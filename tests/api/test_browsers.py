"""What browsers send: CORS with its preflights, refusals that say what to set, and HEAD requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.conftest import serving

APP = "https://app.example.com"
LOCAL = "http://localhost:3000"
EVIL = "https://evil.example"
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, content-type"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browsers")


@pytest.fixture(scope="module")
def opened(folder: Path) -> Iterator[httpx.Client]:
    """A server without a password that lets two origins in."""
    with serving(f"sqlite:///{folder}/open.db", folder, HOLDFAST_CORS_ORIGINS=f"{APP}, {LOCAL}/") as url:
        yield httpx.Client(base_url=url, timeout=30)


@pytest.fixture(scope="module")
def locked(folder: Path) -> Iterator[httpx.Client]:
    """A server with a password, configured as for the retired server."""
    with serving(f"sqlite:///{folder}/locked.db", folder, HOLDFAST_PASSWORD="sesame", ACCEPTABLE_ORIGINS=APP) as url:
        yield httpx.Client(base_url=url, timeout=30)


@pytest.fixture(scope="module")
def closed(folder: Path) -> Iterator[httpx.Client]:
    """A server without a password and without origins."""
    with serving(f"sqlite:///{folder}/closed.db", folder) as url:
        yield httpx.Client(base_url=url, timeout=30)


def preflight(http: httpx.Client, origin: str, **more: str) -> httpx.Response:
    return http.request("OPTIONS", "/v1/agents/", headers={"origin": origin, **ASKS, **more})


# ---- CORS -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [APP, LOCAL, "HTTPS://APP.example.com"])
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_a_named_origin_may_send_and_read(opened: httpx.Client, origin: str, site: str) -> None:
    headers = {"origin": origin, "sec-fetch-site": site}
    response = opened.post("/v1/agents/", json={"model": "demo/rehearsal"}, headers=headers)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == origin
    assert "x-should-retry" in response.headers["access-control-expose-headers"]
    assert response.headers["vary"] == "origin"


def test_a_preflight_of_a_named_origin_allows_what_it_asks_for(opened: httpx.Client) -> None:
    response = preflight(opened, APP)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["access-control-allow-origin"] == APP
    assert response.headers["access-control-allow-headers"] == ASKS["access-control-request-headers"]
    assert "PATCH" in response.headers["access-control-allow-methods"]
    assert "access-control-allow-private-network" not in response.headers
    asked = preflight(opened, APP, **{"access-control-request-private-network": "true"})
    assert asked.headers["access-control-allow-private-network"] == "true"


def test_a_preflight_needs_no_password_and_the_request_does(locked: httpx.Client) -> None:
    assert preflight(locked, APP).status_code == 204
    refused = locked.get("/v1/agents/", headers={"origin": APP})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, APP)
    allowed = locked.get("/v1/agents/", headers={"origin": APP, "authorization": "Bearer sesame"})
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, APP)


@pytest.mark.parametrize("server", ["opened", "locked", "closed"])
def test_a_preflight_of_another_origin_is_refused(server: str, request: pytest.FixtureRequest) -> None:
    response = preflight(request.getfixturevalue(server), EVIL)
    assert response.status_code == 403
    assert "HOLDFAST_CORS_ORIGINS" in response.json()["detail"]
    assert "access-control-allow-origin" not in response.headers


def test_a_page_of_another_origin_cannot_read_what_it_gets_with_the_password(locked: httpx.Client) -> None:
    response = locked.get("/v1/agents/", headers={"origin": EVIL, "authorization": "Bearer sesame"})
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers


def test_following_the_advice_of_a_refusal_lets_the_page_in(closed: httpx.Client, opened: httpx.Client) -> None:
    refused = closed.get("/v1/agents/", headers={"origin": LOCAL, "sec-fetch-site": "same-site"})
    assert refused.status_code == 403
    assert f"{LOCAL} are refused; add it to HOLDFAST_CORS_ORIGINS" in refused.json()["detail"]
    assert opened.get("/v1/agents/", headers={"origin": LOCAL, "sec-fetch-site": "same-site"}).status_code == 200


@pytest.mark.parametrize("headers", [{"origin": "null"}, {"sec-fetch-site": "cross-site"}, {"host": "evil.example"}])
def test_a_page_without_a_named_origin_stays_out(opened: httpx.Client, headers: dict[str, str]) -> None:
    assert opened.get("/v1/agents/", headers=headers).status_code == 403
    assert opened.get("/v1/agents/", headers={"host": "evil.example", "origin": APP}).status_code == 403
    assert preflight(opened, APP, host="evil.example").status_code == 403


def test_with_a_password_every_page_can_be_let_in(folder: Path) -> None:
    settings = {"HOLDFAST_PASSWORD": "sesame", "HOLDFAST_CORS_ORIGINS": "*"}
    with serving(f"sqlite:///{folder}/any.db", folder, **settings) as url, httpx.Client(base_url=url) as http:
        assert preflight(http, EVIL).headers["access-control-allow-origin"] == "*"
        response = http.get("/v1/agents/", headers={"origin": "null", "authorization": "Bearer sesame"})
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, "*")
        assert "access-control-allow-credentials" not in response.headers
        assert http.get("/v1/agents/", headers={"origin": EVIL}).status_code == 401


def test_responses_to_programs_carry_no_cors_headers(opened: httpx.Client) -> None:
    assert not [name for name in opened.get("/v1/agents/").headers if name.startswith("access-control")]


# ---- HEAD -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/v1/health", "/v1/agents/", "/v1/agents/?limit=1", "/v1/agents/bob", "/openapi.json"]
)
def test_head_gives_the_head_of_the_get(closed: httpx.Client, path: str) -> None:
    whole, head = closed.get(path), closed.head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.content))
    assert head.headers["content-type"] == whole.headers["content-type"]


def test_head_of_a_stream_ends(closed: httpx.Client) -> None:
    response = closed.head("/v1/approvals/stream")
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert closed.get("/v1/health").status_code == 200  # over the same connection


def test_head_where_there_is_no_get_is_a_405(closed: httpx.Client) -> None:
    assert closed.head("/v1/passages/search").status_code == 405
