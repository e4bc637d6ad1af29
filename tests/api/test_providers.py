"""Model providers that an organisation adds: their keys, their models, and agents that use them, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import Letta
from sqlalchemy import text

from api.conftest import serving
from holdfast.storage.sql.database import make_engine
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Say

KEY = "sk-brought-by-the-user-0123456789"
PRIVATE = {"HOLDFAST_ALLOW_PRIVATE_URLS": "true"}  # the vendor of these tests is on loopback


@pytest.fixture
def house(database_url: str, tmp_path: Path) -> Iterator[str]:
    with serving(database_url, tmp_path, **PRIVATE) as url:
        yield url


@pytest.fixture
def plain(house: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=house, timeout=30) as client:
        yield client


def brought(vendor: ModelServer, name: str = "mine", **more: Any) -> dict[str, Any]:
    return {"name": name, "provider_type": "openai", "api_key": KEY, "base_url": vendor.openai_url, **more}


def create(plain: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    answer = plain.post("/v1/providers/", json=body)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def talk(url: str, model: str, said: str = "hello", **more: Any) -> Any:
    with Letta(base_url=url, max_retries=0) as client:
        agent = client.agents.create(model=model, include_base_tools=False)
        return client.agents.messages.create(agent.id, input=said, **more)


def test_an_agent_speaks_through_a_provider_that_was_brought(
    house: str, plain: httpx.Client, vendor: ModelServer
) -> None:
    made = create(plain, brought(vendor))
    vendor.script(Say("From afar."))
    answer = talk(house, "mine/gpt-4o-mini")
    assert answer.messages[-1].content == "From afar."
    assert vendor.received[-1].headers["authorization"] == f"Bearer {KEY}"
    assert vendor.received[-1].body["model"] == "gpt-4o-mini"
    (step,) = plain.get("/v1/steps/").json()
    assert (step["provider_name"], step["provider_id"], step["provider_category"]) == ("mine", made["id"], "byok")
    assert step["model_handle"] == "mine/gpt-4o-mini"


def test_the_anthropic_wire_is_brought_as_well(house: str, plain: httpx.Client, vendor: ModelServer) -> None:
    create(plain, brought(vendor, "claude-at-home", provider_type="anthropic", base_url=vendor.url))
    vendor.script(Say("Bonjour."))
    assert talk(house, "claude-at-home/claude-sonnet-4-5").messages[-1].content == "Bonjour."
    assert vendor.received[-1].headers["x-api-key"] == KEY


def test_its_models_are_listed_with_the_others(house: str, plain: httpx.Client, vendor: ModelServer) -> None:
    create(plain, brought(vendor))
    with Letta(base_url=house, max_retries=0) as client:
        listed = {model.handle: model for model in client.models.list()}
        assert {"mine/gpt-4o-mini", "mine/rehearsal", "demo/rehearsal"} <= set(listed)
        assert listed["mine/gpt-4o-mini"].provider_category == "byok"
        assert listed["demo/rehearsal"].provider_category == "base"
        only = client.models.list(provider_category=["byok"])
        assert {model.provider_name for model in only} == {"mine"}
        assert "mine/text-embedding-3-small" in [model.handle for model in client.models.embeddings.list()]


def test_a_key_is_encrypted_at_rest_and_never_returned(
    house: str, plain: httpx.Client, vendor: ModelServer, database_url: str
) -> None:
    made = create(plain, brought(vendor))
    read = [
        plain.get("/v1/providers/").text,
        plain.get(f"/v1/providers/{made['id']}").text,
        plain.patch(f"/v1/providers/{made['id']}/refresh").text,
        plain.get("/v1/models/").text,
    ]
    assert made["api_key"] is None
    assert KEY not in "".join(read)
    engine = make_engine(database_url)
    with engine.connect() as connection:
        (row,) = connection.execute(text("SELECT * FROM providers")).all()
    engine.dispose()
    assert KEY not in str(row)
    assert row._mapping["sealed"].startswith("sealed.")


def test_a_provider_is_read_listed_changed_and_deleted(house: str, plain: httpx.Client, vendor: ModelServer) -> None:
    made = create(plain, brought(vendor))
    assert plain.get(f"/v1/providers/{made['id']}").json() == made
    listed = plain.get("/v1/providers").json()
    assert [row["name"] for row in listed] == ["mine", "demo"]
    assert [row["provider_category"] for row in listed] == ["byok", "base"]
    assert [row["name"] for row in plain.get("/v1/providers/?name=mine").json()] == ["mine"]
    assert plain.get("/v1/providers/?provider_type=anthropic").json() == []
    changed = plain.patch(f"/v1/providers/{made['id']}", json={"api_key": "sk-the-next-one"}).json()
    assert (changed["id"], changed["base_url"]) == (made["id"], made["base_url"])
    gone = plain.delete(f"/v1/providers/{made['id']}")
    assert (gone.status_code, "successfully deleted" in gone.json()["message"]) == (200, True)
    assert plain.get(f"/v1/providers/{made['id']}").status_code == 404
    assert "mine/gpt-4o-mini" not in plain.get("/v1/models/").text


def test_pages_of_providers_follow_each_other(plain: httpx.Client, vendor: ModelServer) -> None:
    for name in ("one", "two", "three"):
        create(plain, brought(vendor, name))
    whole = [row["id"] for row in plain.get("/v1/providers/").json()]
    paged: list[str] = []
    while rows := plain.get("/v1/providers/", params={"limit": 1, **({"after": paged[-1]} if paged else {})}).json():
        paged += [row["id"] for row in rows]
    assert paged == whole
    assert [row["id"] for row in plain.get("/v1/providers/?order=asc").json()] == whole[::-1]


def test_a_key_that_the_vendor_refuses_is_refused_and_kept_out_of_the_answer(
    plain: httpx.Client, vendor: ModelServer
) -> None:
    vendor.keys = {KEY}
    wrong = "sk-wrong-and-secret-987654321"
    for path, body in (
        ("/v1/providers/check", {"provider_type": "openai", "api_key": wrong, "base_url": vendor.openai_url}),
        ("/v1/providers/", brought(vendor, api_key=wrong)),
    ):
        answer = plain.post(path, json=body)
        assert (answer.status_code, answer.json()["error"]["type"]) == (401, "llm_authentication")
        assert wrong not in answer.text
    assert [row["name"] for row in plain.get("/v1/providers/").json()] == ["demo"]


def test_a_key_can_be_checked_before_and_after(plain: httpx.Client, vendor: ModelServer) -> None:
    vendor.keys = {KEY}
    body = {"provider_type": "openai", "api_key": KEY, "base_url": vendor.openai_url}
    assert "Valid" in plain.post("/v1/providers/check", json=body).json()["message"]
    made = create(plain, brought(vendor))
    assert plain.post(f"/v1/providers/{made['id']}/check").status_code == 200
    vendor.keys = {"another"}
    assert plain.post(f"/v1/providers/{made['id']}/check").status_code == 401


def test_new_models_appear_when_the_provider_is_refreshed(house: str, plain: httpx.Client, vendor: ModelServer) -> None:
    made = create(plain, brought(vendor))
    vendor.openai_models.append("fresh-model")
    assert "mine/fresh-model" not in plain.get("/v1/models/").text
    refreshed = plain.patch(f"/v1/providers/{made['id']}/refresh")
    assert refreshed.status_code == 200
    assert "mine/fresh-model" in plain.get("/v1/models/").text
    vendor.script(Say("Fresh."))
    assert talk(house, "mine/fresh-model").messages[-1].content == "Fresh."


def test_a_changed_key_counts_at_once_also_in_another_process(
    house: str, plain: httpx.Client, vendor: ModelServer, database_url: str, tmp_path: Path
) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("one process per SQLite file")
    made = create(plain, brought(vendor))
    with serving(database_url, tmp_path, **PRIVATE) as elsewhere, Letta(base_url=elsewhere, max_retries=0) as client:
        agent = client.agents.create(model="mine/gpt-4o-mini", include_base_tools=False)
        client.agents.messages.create(agent.id, input="one")
        assert vendor.received[-1].headers["authorization"] == f"Bearer {KEY}"
        plain.patch(f"/v1/providers/{made['id']}", json={"api_key": "sk-another-one"}).raise_for_status()
        client.agents.messages.create(agent.id, input="two")
        assert vendor.received[-1].headers["authorization"] == "Bearer sk-another-one"
        plain.delete(f"/v1/providers/{made['id']}").raise_for_status()
        answer = httpx.post(f"{elsewhere}/v1/agents/{agent.id}/messages", json={"input": "three"}, timeout=30)
        assert answer.status_code == 400
        assert "mine/gpt-4o-mini" in answer.text


def test_a_stored_key_is_not_sent_to_another_place(plain: httpx.Client, vendor: ModelServer) -> None:
    made = create(plain, brought(vendor))
    answer = plain.patch(f"/v1/providers/{made['id']}", json={"base_url": "http://127.0.0.1:9/v1"})
    assert answer.status_code == 400
    assert "needs the key again" in answer.json()["detail"]
    assert plain.get(f"/v1/providers/{made['id']}").json()["base_url"] == vendor.openai_url


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ({"name": "demo"}, 409, "server's own"),
        ({"name": "mine"}, 409, "exists already"),
        ({"name": "a/b"}, 400, "letters, digits"),
        ({"provider_type": "nobody"}, 400, "There is no provider type 'nobody'"),
        ({"provider_type": "demo"}, 400, "built in"),
        ({"base_url": "ftp://example.com"}, 400, "http:// or https://"),
        ({"api_key": None, "base_url": None}, 400, "needs api_key"),
        ({"name": None}, 422, "name"),
        ({"provider_type": "bedrock", "region": "evil.example/?", "base_url": None}, 400, "region may hold"),
        (
            {"provider_type": "google_vertex", "project": "p", "location": "l", "credentials": "/etc/passwd"},
            400,
            "JSON",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    plain: httpx.Client, vendor: ModelServer, more: dict[str, Any], status: int, said: str
) -> None:
    create(plain, brought(vendor))
    before = plain.get("/v1/providers/").json()
    answer = plain.post("/v1/providers/", json=brought(vendor, "other") | more)
    assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert plain.get("/v1/providers/").json() == before


def test_the_servers_own_providers_cannot_be_changed_here(plain: httpx.Client) -> None:
    (own,) = plain.get("/v1/providers/").json()
    assert plain.get(f"/v1/providers/{own['id']}").json() == own
    for method, path in (("PATCH", ""), ("PATCH", "/refresh"), ("DELETE", ""), ("POST", "/check")):
        answer = plain.request(method, f"/v1/providers/{own['id']}{path}", json={})
        assert (answer.status_code, "server's own" in answer.text) == (400, True)


def test_a_vendor_without_a_listing_is_taken_on_trust(house: str, plain: httpx.Client, vendor: ModelServer) -> None:
    made = create(plain, brought(vendor, "silent", base_url=f"{vendor.url}/nothing/here"))
    assert made["last_synced"] is None
    plain.patch(f"/v1/providers/{made['id']}", json={"base_url": vendor.openai_url, "api_key": KEY}).raise_for_status()
    assert "silent/gpt-4o-mini" in plain.get("/v1/models/").text


@pytest.mark.parametrize(
    "base_url",
    ["http://127.0.0.1:{port}/v1", "http://localhost:{port}/v1", "http://169.254.169.254/v1", "http://[::1]:{port}/v1"],
)
def test_addresses_inside_are_refused_unless_the_operator_allows_them(
    database_url: str, tmp_path: Path, vendor: ModelServer, base_url: str
) -> None:
    inside = base_url.format(port=vendor.url.rpartition(":")[2])
    with serving(database_url, tmp_path) as url:
        for path in ("/v1/providers/", "/v1/providers/check"):
            answer = httpx.post(f"{url}{path}", json=brought(vendor, base_url=inside), timeout=30)
            assert (answer.status_code, "HOLDFAST_ALLOW_PRIVATE_URLS" in answer.text) == (400, True), answer.text
        assert [row["name"] for row in httpx.get(f"{url}/v1/providers/").json()] == ["demo"]


def test_an_address_that_turned_inside_fails_the_run_and_not_the_server(
    database_url: str, tmp_path: Path, vendor: ModelServer
) -> None:
    with serving(database_url, tmp_path, **PRIVATE) as url:
        httpx.post(f"{url}/v1/providers/", json=brought(vendor)).raise_for_status()
        with Letta(base_url=url, max_retries=0) as client:
            agent = client.agents.create(model="mine/gpt-4o-mini", include_base_tools=False)
    with serving(database_url, tmp_path) as url:
        answer = httpx.post(f"{url}/v1/agents/{agent.id}/messages", json={"input": "hi"}, timeout=30)
        assert (answer.status_code, "not a public address" in answer.text) == (400, True), answer.text
    assert not vendor.received


def test_a_key_that_can_no_longer_be_decrypted_says_so_and_can_be_stored_again(
    database_url: str, tmp_path: Path, vendor: ModelServer
) -> None:
    with serving(database_url, tmp_path, **PRIVATE) as url:
        made = httpx.post(f"{url}/v1/providers/", json=brought(vendor)).json()
        with Letta(base_url=url, max_retries=0) as client:
            agent = client.agents.create(model="mine/gpt-4o-mini", include_base_tools=False).id
    with serving(database_url, tmp_path, **PRIVATE, HOLDFAST_ENCRYPTION_KEY="another key") as url:
        assert httpx.get(f"{url}/v1/agents/{agent}").status_code == 200
        answer = httpx.post(f"{url}/v1/agents/{agent}/messages", json={"input": "hi"}, timeout=30)
        assert (answer.status_code, "HOLDFAST_ENCRYPTION_KEY" in answer.text) == (401, True), answer.text
        assert httpx.patch(f"{url}/v1/providers/{made['id']}/refresh").status_code == 409
        httpx.patch(f"{url}/v1/providers/{made['id']}", json={"api_key": KEY}).raise_for_status()
        httpx.post(f"{url}/v1/agents/{agent}/messages", json={"input": "hi"}, timeout=30).raise_for_status()


def test_a_fallback_answers_when_the_provider_is_gone(house: str, plain: httpx.Client, vendor: ModelServer) -> None:
    made = create(plain, brought(vendor))
    with Letta(base_url=house, max_retries=0) as client:
        fallback = {"fallback_models": ["demo/rehearsal"]}
        agent = client.agents.create(model="mine/gpt-4o-mini", include_base_tools=False, extra_body=fallback).id
        plain.delete(f"/v1/providers/{made['id']}").raise_for_status()
        assert client.agents.messages.create(agent, input="hello").stop_reason.stop_reason == "end_turn"
    (step,) = plain.get("/v1/steps/").json()
    assert (step["model_handle"], step["failed_models"][0]["model_handle"]) == ("demo/rehearsal", "mine/gpt-4o-mini")
    (failed, _) = plain.get(f"/v1/runs/{step['run_id']}/trace").json()
    assert "not found" in failed["response_json"]["error"]["message"]
