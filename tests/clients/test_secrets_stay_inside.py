"""No secret leaks into logs, traces, errors or responses, after runs with failures of every kind.

A real server process logs at its most verbose level; a vendor repeats every key that it rejects; a tool prints its
agent's secret, returns it and fails with it. Then the test reads everything that can be read, and searches it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from letta_client import Letta

from holdfast.testing.model_server import ModelServer
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.script import Call, CutOff, Drop, Fail, FailMidStream, Say
from server_fixture import StartedAnew

OPERATOR_KEY = "sk-operator-key-11aa22bb33cc"
ANTHROPIC_KEY = "sk-ant-operator-key-44dd55ee66ff"
BROUGHT_KEY = "sk-brought-key-77gg88hh99ii"
REFUSED_KEY = "sk-refused-key-00jj00kk00ll"
PASSWORD = "password-of-the-server-mm11nn22"
DATABASE_PASSWORD = "password-of-the-database-oo33pp44"
SEALING_KEY = "sealing-key-qq55rr66"
TOOL_SECRET = "tool-secret-value-ss77tt88"
SECRETS = (
    OPERATOR_KEY,
    ANTHROPIC_KEY,
    BROUGHT_KEY,
    REFUSED_KEY,
    PASSWORD,
    DATABASE_PASSWORD,
    SEALING_KEY,
    TOOL_SECRET,
)
TOOL = '''
def login(user: str) -> str:
    """Log in with the token.

    Args:
        user: Who.
    """
    import os
    token = os.environ["TOKEN"]
    print("trying " + token)
    if user == "nobody":
        raise PermissionError("the token was not accepted for " + user + ": " + token)
    return "logged in with " + token
'''
READ = (
    "/v1/health",
    "/openapi.json",
    "/v1/agents/",
    "/v1/providers/",
    "/v1/models/",
    "/v1/models/embedding",
    "/v1/runs/",
    "/v1/steps/",
    "/v1/messages",
    "/v1/tools/",
    "/v1/approvals",
)


@pytest.fixture
def vendor() -> Iterator[ModelServer]:
    loop, up, server, down = asyncio.new_event_loop(), threading.Event(), ModelServer(), asyncio.Event()
    server.keys = {OPERATOR_KEY, ANTHROPIC_KEY, BROUGHT_KEY}

    async def serve() -> None:
        async with server:
            up.set()
            await down.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert up.wait(30)
    yield server
    loop.call_soon_threadsafe(down.set)
    thread.join(30)
    loop.close()


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path, vendor: ModelServer) -> Iterator[StartedAnew]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/holdfast.db"
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        url = postgres.create_database("secrets_stay_inside")
        url = url.replace("postgres@", f"postgres:{DATABASE_PASSWORD}@", 1)  # this Postgres accepts any password
    environment = {
        "HOLDFAST_PASSWORD": PASSWORD,
        "HOLDFAST_ENCRYPTION_KEY": SEALING_KEY,
        "HOLDFAST_LOG_LEVEL": "debug",
        "HOLDFAST_ALLOW_PRIVATE_URLS": "true",
        "OPENAI_API_KEY": OPERATOR_KEY,
        "OPENAI_BASE_URL": vendor.openai_url,
        "ANTHROPIC_API_KEY": ANTHROPIC_KEY,
        "ANTHROPIC_BASE_URL": vendor.url,
    }
    with StartedAnew(url, **environment) as process:
        yield process
    if request.param == "postgres":
        request.getfixturevalue("postgres_server").drop_database("secrets_stay_inside")


def test_no_secret_is_found_anywhere_after_a_run_with_failures(server: StartedAnew, vendor: ModelServer) -> None:
    told: list[str] = []
    # Like the SDKs: an agent's secrets are shown only to clients that include them, and to clients before 1.0.
    headers = {"authorization": f"Bearer {PASSWORD}", "x-stainless-package-version": "1.12.1"}
    with (
        httpx.Client(base_url=server.url, headers=headers, timeout=60) as plain,
        Letta(base_url=server.url, api_key=PASSWORD, max_retries=0) as client,
    ):
        tool = client.tools.upsert(source_code=TOOL)
        own = {"name": "mine", "provider_type": "openai", "base_url": vendor.openai_url}
        told.append(plain.post("/v1/providers/", json={**own, "api_key": BROUGHT_KEY}).text)
        told.append(plain.post("/v1/providers/", json={**own, "name": "no", "api_key": REFUSED_KEY}).text)
        told.append(plain.post("/v1/providers/check", json={**own, "api_key": REFUSED_KEY}).text)
        told.append(httpx.get(f"{server.url}/v1/agents/", headers={"authorization": "Bearer wrong"}).text)
        for model in ("openai-proxy/gpt-4o-mini", "anthropic/claude-sonnet-4-5", "mine/gpt-4o-mini"):
            agent = client.agents.create(
                model=model, tool_ids=[tool.id], include_base_tools=False, secrets={"TOKEN": TOOL_SECRET}
            ).id
            path = f"/v1/agents/{agent}/messages"
            vendor.script(Call("login", {"user": "ada"}), Call("login", {"user": "nobody"}))
            vendor.script(Say("One of two."))
            told.append(plain.post(path, json={"input": "log in"}).text)
            for wrong in (Fail.of("llm_bad_request"), Fail.of("llm_error"), CutOff(), FailMidStream(), Drop()):
                vendor.script(*((wrong,) if isinstance(wrong, Fail) else (Say("Half"), wrong)))
                told.append(plain.post(path, json={"input": "fail"}).text)
            vendor.script(Say("Half"), Drop())
            told.append(plain.post(path, json={"input": "fail", "streaming": True, "stream_tokens": True}).text)
            vendor.keys = set()  # all keys are revoked, and every rejection repeats the key
            told.append(plain.post(path, json={"input": "fail"}).text)
            told.append(plain.post(path, json={"input": "fail", "streaming": True}).text)
            told.append(plain.post(f"{path}/preview-raw-payload", json={"input": "show me"}).text)
            vendor.keys = {OPERATOR_KEY, ANTHROPIC_KEY, BROUGHT_KEY}
            told += [plain.get(f"/v1/agents/{agent}").text, plain.get(path).text]
        told += [plain.get(read).text for read in READ]
        for step in plain.get("/v1/steps/?limit=1000").json():
            told.append(plain.get(f"/v1/steps/{step['id']}/trace").text)
        runs = plain.get("/v1/runs/?limit=1000").json()
        for run in runs:
            told += [plain.get(f"/v1/runs/{run['id']}{part}").text for part in ("", "/trace", "/messages", "/steps")]
    server.stop()
    log = server.log_path.read_text()
    assert len(runs) > 20, "the run with failures did not take place"
    assert any("Incorrect API key provided: [hidden]" in text for text in told), "no refusal repeated a key"
    assert any("the token was not accepted" in text for text in told), "the tool did not fail as it should"
    found = [(secret, where) for secret in SECRETS for where in (*told, log) if secret in where]
    assert found == []
