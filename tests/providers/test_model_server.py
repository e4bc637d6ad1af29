"""The fake model server speaks both APIs, streamed or whole, scripted or on its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest

from holdfast.core.model import ReplyDone, ToolSpec
from holdfast.ports.model import Model
from holdfast.providers.anthropic.anthropic import Anthropic
from holdfast.providers.http.credentials import bearer, header
from holdfast.providers.http.endpoint import endpoint_for
from holdfast.providers.openai.chat_completions import OpenAIChat
from holdfast.testing.model_contract import simple_request
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Call, Fail, Hang, Say
from holdfast.testing.scripted_model import ScriptedModel

ROLL = ToolSpec("roll", "", {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]})


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


def model_on(server: ModelServer, api: str) -> Model:
    if api == "openai":
        return OpenAIChat(endpoint_for("openai", server.openai_url, bearer("secret")))
    return Anthropic(endpoint_for("anthropic", server.url, header("x-api-key", "secret")))


async def whole(server: ModelServer, path: str, **body: Any) -> Any:
    async with aiohttp.ClientSession() as session, session.post(server.url + path, json=body) as response:
        return await response.json()


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_without_a_script_it_behaves_like_the_demo_model(server: ModelServer, api: str) -> None:
    model = model_on(server, api)
    deltas = [delta async for delta in model.stream(simple_request("Call roll with 16 sides", (ROLL,)))]
    await model.close()
    assert isinstance(deltas[-1], ReplyDone)
    assert [(call.name, call.arguments) for call in deltas[-1].reply.calls] == [("roll", '{"sides":16}')]
    assert deltas[-1].reply.usage.prompt_tokens > 10


async def test_requests_are_kept_with_their_headers_and_bodies(server: ModelServer) -> None:
    for api in ("openai", "anthropic"):
        model = model_on(server, api)
        _ = [delta async for delta in model.stream(simple_request("hello"))]
        await model.close()
    first, second = await server.wait_for_request(1), await server.wait_for_request(2)
    assert (first.path, first.headers["authorization"]) == ("/v1/chat/completions", "Bearer secret")
    assert (second.headers["x-api-key"], second.headers["anthropic-version"]) == ("secret", "2023-06-01")
    assert first.headers["accept-encoding"] == "identity"
    assert first.body["messages"] == [{"role": "user", "content": "hello"}]


async def test_it_responds_in_one_piece_without_streaming(server: ModelServer) -> None:
    server.script(Say("Hi."), Call("roll", {"sides": 6}))
    server.script(Say("Hi."), Call("roll", {"sides": 6}))
    chat = await whole(server, "/v1/chat/completions", model="m", messages=[])
    anthropic = await whole(server, "/v1/messages", model="m", messages=[])
    assert chat["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"sides":6}'
    assert [block["type"] for block in anthropic["content"]] == ["text", "tool_use"]
    assert anthropic["stop_reason"] == "tool_use"


async def test_it_notices_when_its_client_goes_away(server: ModelServer) -> None:
    server.script(Say("One"), Hang())
    model = model_on(server, "openai")
    async with aclosing(model.stream(simple_request("hello"))) as stream:
        await anext(stream)
    gone = await server.wait_for_disconnect()
    await model.close()
    assert gone.disconnected_at is not None
    assert gone.answered_at is None


async def test_a_script_can_be_posted_from_another_process(server: ModelServer) -> None:
    async with aiohttp.ClientSession() as session:
        await session.post(f"{server.url}/script", json=[[{"step": "Say", "text": "Posted."}]])
    said = await whole(server, "/v1/chat/completions", model="m", messages=[])
    assert said["choices"][0]["message"]["content"] == "Posted."


async def test_a_scripted_failure_can_have_any_body(server: ModelServer) -> None:
    server.script(Fail(418, {"short": "and stout"}))
    assert await whole(server, "/v1/messages", model="m", messages=[]) == {"short": "and stout"}


async def test_it_runs_as_a_process_that_prints_its_url() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast.testing.model_server", "--port", "0", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/models") as response:
            listed = await response.json()
    finally:
        process.terminate()
        await process.wait()
    assert listed["data"][0]["id"] == "rehearsal"


async def test_a_scripted_model_without_a_reply_left_says_so() -> None:
    with pytest.raises(AssertionError, match="no reply left"):
        _ = [delta async for delta in ScriptedModel().stream(simple_request("hello"))]
