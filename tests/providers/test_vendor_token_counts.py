"""Vendors that can count the tokens of a prompt are asked to, over their own APIs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.core.errors import ModelError
from holdfast.core.model import ModelSettings, ToolSpec
from holdfast.ports.model import CountsTokens, Model
from holdfast.providers import factory
from holdfast.testing.counting import ONLY_THE_VENDOR_KNOWS
from holdfast.testing.model_contract import simple_request
from holdfast.testing.model_server import ModelServer

TOOL = ToolSpec("roll", "Roll a die.", {"type": "object", "properties": {"sides": {"type": "integer"}}})
SETTINGS = ModelSettings(temperature=0.5, max_output_tokens=99, extra_body={"top_k": 3})


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.mark.parametrize("kind", ["anthropic", "google_ai"])
async def test_the_vendor_counts_the_request_it_would_receive(server: ModelServer, kind: str) -> None:
    model = made(server, kind)
    assert isinstance(model, CountsTokens)
    name = {"anthropic": "claude-sonnet-4-5", "google_ai": "gemini-2.5-flash"}[kind]
    plain = replace(simple_request("hello"), model=name)
    few = await model.count_tokens(plain)
    more = await model.count_tokens(replace(plain, tools=(TOOL,), settings=SETTINGS))
    assert few > ONLY_THE_VENDOR_KNOWS
    assert more > few + 10
    await model.close()


async def test_a_vendor_that_refuses_is_an_error_like_any_other(server: ModelServer) -> None:
    server.keys = {"another"}
    model = made(server, "anthropic")
    assert isinstance(model, CountsTokens)
    with pytest.raises(ModelError) as raised:
        await model.count_tokens(replace(simple_request("hello"), model="claude-sonnet-4-5"))
    assert raised.value.kind == "llm_authentication"
    await model.close()


def test_others_do_not_claim_to_count(server: ModelServer) -> None:
    assert not isinstance(made(server, "openai"), CountsTokens)


def made(server: ModelServer, kind: str) -> Model:
    url = {"anthropic": server.url, "google_ai": server.gemini_url, "openai": server.openai_url}[kind]
    return factory.make(kind, api_key="secret", base_url=url)
