"""Models are found by handle, also when a provider's listing fails."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from holdfast.core.errors import ModelError, UnknownHandle
from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.demo.demo_model import Demo
from holdfast.providers.directory import LISTING_SECONDS, RETRY_SECONDS, Directory
from holdfast.providers.factory import build
from holdfast.providers.model_limits import limits_of
from holdfast.providers.openai.openai import OpenAI
from holdfast.testing.model_server import ModelServer


class Listed:
    """A provider that only lists; None means that it cannot be asked."""

    def __init__(self, name: str, *models: str, broken: bool = False) -> None:
        self.name, self.models, self.broken, self.asked = name, models, broken, 0

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        raise NotImplementedError

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        raise NotImplementedError

    async def list_models(self) -> Sequence[ModelInfo]:
        self.asked += 1
        if self.broken:
            raise ModelError("llm_error", "down")
        return [ModelInfo(f"{self.name}/{model}", model, self.name, "openai", None) for model in self.models]

    async def close(self) -> None:
        pass


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def directory(*providers: Listed, clock: Clock | None = None) -> Directory:
    return Directory([(provider.name, provider) for provider in providers], clock=clock or Clock())


async def test_a_model_is_found_by_its_handle() -> None:
    acme = Listed("acme", "org/big")
    found = await directory(acme).find("acme/org/big")
    assert (found.model, found.info.name) == (acme, "org/big")


@pytest.mark.parametrize("handle", ["acme/none", "nobody/m", "acme", "acme/"])
async def test_the_error_for_an_unknown_handle_lists_the_known_ones(handle: str) -> None:
    with pytest.raises(UnknownHandle) as raised:
        await directory(Listed("acme", "m1", "m2")).find(handle)
    assert str(raised.value) == f"NOT_FOUND: Handle {handle} not found, must be one of ['acme/m1', 'acme/m2']"


async def test_a_provider_whose_listing_fails_does_not_hide_the_others() -> None:
    listed = await directory(Listed("down", broken=True), Listed("acme", "m")).list_models()
    assert [info.handle for info in listed] == ["acme/m"]


async def test_any_model_is_accepted_of_a_provider_whose_listing_fails() -> None:
    found = await directory(Listed("down", broken=True)).find("down/mystery")
    assert (found.info.handle, found.info.context_window) == ("down/mystery", None)


async def test_a_listing_is_kept_for_a_while() -> None:
    acme, clock = Listed("acme", "m"), Clock()
    models = directory(acme, clock=clock)
    await models.list_models()
    await models.list_models()
    assert acme.asked == 1
    clock.now = LISTING_SECONDS + 1
    await models.list_models()
    assert acme.asked == 2


async def test_a_known_model_is_found_without_asking_again() -> None:
    acme, clock = Listed("acme", "m"), Clock()
    models = directory(acme, clock=clock)
    await models.find("acme/m")
    clock.now = LISTING_SECONDS * 10
    await models.find("acme/m")
    assert acme.asked == 1


async def test_a_failed_listing_keeps_the_old_one_and_is_retried_soon() -> None:
    acme, clock = Listed("acme", "m"), Clock()
    models = directory(acme, clock=clock)
    await models.list_models()
    acme.broken, clock.now = True, LISTING_SECONDS + 1
    assert len(await models.list_models()) == 1
    clock.now += RETRY_SECONDS + 1
    await models.list_models()
    assert acme.asked == 3


async def test_a_custom_openai_url_is_a_proxy_that_also_answers_to_openai() -> None:
    async with ModelServer() as server:
        models = Directory(build({"openai_base_url": server.openai_url}))
        handles = [info.handle for info in await models.list_models()]
        assert "openai-proxy/gpt-4o-mini" in handles
        assert "openai/text-embedding-3-small" in handles
        found = await models.find("openai/gpt-4o-mini")
        assert (found.info.handle, found.info.provider_type) == ("openai-proxy/gpt-4o-mini", "openai")
        await models.close()


def test_the_environment_decides_which_providers_there_are() -> None:
    assert [name for name, _ in build({})] == ["demo"]
    keys = {"openai_api_key": "k", "anthropic_api_key": "k", "anthropic_base_url": ""}
    [openai, anthropic, demo] = build(keys)
    assert (openai[0], anthropic[0], demo[0]) == ("openai", "anthropic", "demo")
    assert isinstance(openai[1], OpenAI)
    assert isinstance(demo[1], Demo)


async def test_the_listing_tells_windows_and_kinds() -> None:
    async with ModelServer() as server:
        models = Directory(build({"openai_base_url": server.openai_url, "anthropic_base_url": server.url}))
        listed = {info.handle: info for info in await models.list_models()}
        await models.close()
    assert listed["openai-proxy/rehearsal"].context_window == 128_000
    assert listed["anthropic/claude-sonnet-4-5"].max_output_tokens == 64_000
    assert listed["openai/text-embedding-3-small"].kind == "embedding"
    assert listed["openai/text-embedding-3-small"].embedding_dim == 1536
    assert listed["demo/rehearsal"].context_window == 128_000


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-4o-mini-2024-07-18", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("openai/gpt-5", 400_000),
        ("claude-3-5-haiku-latest", 200_000),
        ("claude-opus-4-6", 1_000_000),
        ("gpt-4.5-preview", None),
        ("llama3.3", None),
    ],
)
def test_a_window_is_known_by_the_longest_prefix_or_not_at_all(model: str, window: int | None) -> None:
    limits = limits_of(model)
    assert (limits.context_window if limits else None) == window
