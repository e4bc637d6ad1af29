"""Each vendor's deviations from Chat Completions, as they are sent, and what vendors list of their models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from holdfast.core.conversation.messages import (
    AssistantBody,
    Body,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.model import Delta, ModelInfo, ModelRequest, ModelSettings, ToolSpec
from holdfast.providers.factory import make
from holdfast.providers.http.sse import Event
from holdfast.providers.openai.chat_reply import ChatDecoder
from holdfast.providers.vendors import VENDORS
from holdfast.testing.wire_formats.request_reading import as_messages

ASKED = UserBody((Text("Go."),))
LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {}})
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}


def body_of(vendor: str, *bodies: Body, model: str = "some-model", **settings: Any) -> Mapping[str, Any]:
    request = ModelRequest(model, as_messages(bodies or (ASKED,)), (LOOK,), settings=ModelSettings(**settings))
    return make(vendor, api_key="k", base_url=VENDORS[vendor].base_url or "http://localhost:1/v1").payload(request)


def decoded(*chunks: dict[str, Any]) -> tuple[ChatDecoder, list[Delta]]:
    decoder = ChatDecoder("v")
    return decoder, [delta for chunk in chunks for delta in decoder.feed(Event(b"", orjson.dumps(chunk)))]


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


@pytest.mark.parametrize(("vendor", "field"), [("groq", "max_completion_tokens"), ("together", "max_tokens")])
def test_the_output_limit_has_the_vendors_field_name(vendor: str, field: str) -> None:
    assert body_of(vendor, max_output_tokens=9)[field] == 9


def test_mistral_is_sent_nothing_it_refuses_and_ids_in_its_form() -> None:
    call, result = ToolCall("call_abc-123", "look", "{}"), ToolResult("call_abc-123", "success", "ok")
    body = body_of("mistral", ASKED, AssistantBody((), (call,)), ToolReturnsBody((result,)), reasoning_effort="low")
    assert not {"stream_options", "reasoning_effort", "prompt_cache_key"} & body.keys()
    sent = body["messages"][1]["tool_calls"][0]["id"]
    assert sent == body["messages"][2]["tool_call_id"]
    assert len(sent) == 9
    assert sent.isalnum()


@pytest.mark.parametrize("vendor", ["deepseek", "moonshot", "zai"])
def test_reasoning_is_sent_back_to_vendors_that_need_it(vendor: str) -> None:
    reply = AssistantBody((Reasoning("Hm."),), (ToolCall("a", "look", "{}"),))
    assert body_of(vendor, ASKED, reply)["messages"][1]["reasoning_content"] == "Hm."
    assert "reasoning_content" not in body_of("together", ASKED, reply)["messages"][1]


def test_deepseek_gets_a_request_for_json_without_a_schema() -> None:
    assert body_of("deepseek", response_format=SCHEMA)["response_format"] == {"type": "json_object"}
    assert body_of("together", response_format=SCHEMA)["response_format"] == SCHEMA


@pytest.mark.parametrize(
    ("vendor", "model", "taken"),
    [
        ("xai", "grok-4", False),
        ("xai", "grok-3-mini", True),
        ("groq", "openai/gpt-oss-120b", True),
        ("groq", "llama", False),
    ],
)
def test_an_effort_is_sent_only_to_models_that_accept_it(vendor: str, model: str, taken: bool) -> None:
    assert ("reasoning_effort" in body_of(vendor, model=model, reasoning_effort="low")) is taken


def test_openrouters_signed_reasoning_details_are_sent_back_unchanged() -> None:
    said = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    hidden = {
        "type": "reasoning.encrypted",
        "data": "c1pher",
        "format": "openai-responses-v1",
        "id": "rs_1",
        "index": 1,
    }
    decoder, _ = decoded(
        delta(reasoning="Hm", reasoning_details=[{**said, "text": "Hm"}]),
        delta(reasoning=".", reasoning_details=[{**said, "text": "."}]),
        delta(reasoning_details=[{**said, "signature": "s1"}]),
        delta(reasoning_details=[hidden]),
        delta("stop", content="So."),
    )
    reply = AssistantBody(decoder.reply().parts)
    assert body_of("openrouter", ASKED, reply)["messages"][1] == {
        "role": "assistant",
        "content": "So.",
        "reasoning_details": [{**said, "signature": "s1", "text": "Hm."}, hidden],
    }


def test_mistrals_thinking_is_read_from_the_content() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    decoder, _ = decoded(delta(content=[thinking]), delta("stop", content=[{"type": "text", "text": "So."}]))
    assert decoder.reply().parts == (Reasoning("Hm."), Text("So."))


@asynccontextmanager
async def answering(answers: Mapping[str, Any]) -> AsyncIterator[str]:
    """A vendor that only lists: JSON by path; a callable is given the request's body."""

    async def answer(request: web.Request) -> web.Response:
        said = answers.get(request.path)
        if said is None:
            return web.json_response({"error": "not found"}, status=404)
        return web.json_response(said(await request.json()) if callable(said) else said)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")


async def listed(vendor: str, answers: Mapping[str, Any], path: str = "") -> dict[str, ModelInfo]:
    async with answering(answers) as url:
        model = make(vendor, api_key="k", base_url=url + path)
        infos = {info.name: info for info in await model.list_models()}
        await model.close()
    return infos


async def test_openrouter_tells_windows_and_abilities() -> None:
    entry = {
        "id": "acme/big",
        "context_length": 262_144,
        "top_provider": {"max_completion_tokens": 9_999},
        "architecture": {"input_modalities": ["text", "image"]},
        "supported_parameters": ["tools", "reasoning"],
    }
    small = {"id": "acme/small", "context_length": 8_000, "architecture": {"input_modalities": ["text"]}}
    infos = await listed("openrouter", {"/models": {"data": [entry, small]}})
    big = infos["acme/big"]
    assert (big.handle, big.context_window, big.max_output_tokens) == ("openrouter/acme/big", 262_144, 9_999)
    assert big.abilities == {"images", "reasoning", "parallel_tool_calls"}
    assert infos["acme/small"].abilities == frozenset()


async def test_the_vendors_word_on_a_window_wins_over_ours() -> None:
    infos = await listed("vllm", {"/v1/models": {"data": [{"id": "gpt-4o", "max_model_len": 4096}, {"id": "gpt-4.1"}]}})
    assert (infos["gpt-4o"].context_window, infos["gpt-4.1"].context_window) == (4096, 1_047_576)


async def test_an_unknown_model_has_no_window_rather_than_a_guess() -> None:
    infos = await listed("together", {"/models": [{"id": "acme/new"}, {"id": "acme/big", "context_length": 99}]})
    assert (infos["acme/new"].context_window, infos["acme/big"].context_window) == (None, 99)


async def test_ollama_gets_a_request_for_each_models_details() -> None:
    shown = {
        "qwen3:8b": {
            "model_info": {"qwen3.context_length": 40_960},
            "capabilities": ["completion", "tools", "thinking"],
        },
        "tuned": {"model_info": {"llama.context_length": 131_072}, "parameters": "temperature 1\nnum_ctx    16384"},
        "nomic-embed-text:latest": {"model_info": {"bert.context_length": 2048}, "capabilities": ["embedding"]},
    }
    names = [{"name": name} for name in shown]
    answers = {"/api/tags": {"models": names}, "/api/show": lambda body: shown[body["model"]]}
    infos = await listed("ollama", answers)
    assert (infos["qwen3:8b"].context_window, infos["qwen3:8b"].abilities) == (
        40_960,
        frozenset({"reasoning", "parallel_tool_calls"}),
    )
    assert infos["tuned"].context_window == 16_384
    embeds = infos["nomic-embed-text:latest"]
    assert (embeds.kind, embeds.embedding_dim) == ("embedding", 768)


async def test_lm_studio_lists_the_loaded_window_and_an_older_version_the_common_listing() -> None:
    entries = [
        {"id": "qwen", "type": "vlm", "max_context_length": 32_768, "loaded_context_length": 8_192},
        {"id": "nomic", "type": "embeddings", "max_context_length": 2_048},
    ]
    infos = await listed("lmstudio_openai", {"/api/v0/models": {"data": entries}})
    assert (infos["qwen"].context_window, "images" in infos["qwen"].abilities) == (8_192, True)
    assert infos["nomic"].kind == "embedding"
    assert "old" in await listed("lmstudio_openai", {"/v1/models": {"data": [{"id": "old"}]}})


async def test_llama_cpp_tells_the_window_it_was_started_with() -> None:
    models = {"data": [{"id": "m.gguf", "meta": {"n_ctx_train": 131_072}}]}
    props = {"default_generation_settings": {"n_ctx": 4096}, "modalities": {"vision": True}}
    assert (await listed("llamacpp", {"/v1/models": models, "/props": props}))["m.gguf"].context_window == 4096
    assert (await listed("llamacpp", {"/v1/models": models}))["m.gguf"].context_window == 131_072


async def test_gemini_lists_the_limits_of_a_model() -> None:
    entries = [
        {
            "name": "models/gemini-9-ultra",
            "inputTokenLimit": 5,
            "outputTokenLimit": 3,
            "supportedGenerationMethods": ["generateContent"],
        },
        {"name": "models/gemini-embedding-001", "inputTokenLimit": 2, "supportedGenerationMethods": ["embedContent"]},
        {"name": "models/imagen", "supportedGenerationMethods": ["predict"]},
    ]
    infos = await listed("google_ai", {"/models": {"models": entries}})
    assert set(infos) == {"gemini-9-ultra", "gemini-embedding-001"}
    ultra = infos["gemini-9-ultra"]
    assert (ultra.handle, ultra.context_window, ultra.max_output_tokens) == ("google_ai/gemini-9-ultra", 5, 3)
    assert infos["gemini-embedding-001"].embedding_dim == 3072
