"""Providers are made from plain values; the vendor table, the settings and the clients' names agree."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from letta_client.types.provider_type import ProviderType

from holdfast.core.errors import Invalid
from holdfast.core.model import ModelRequest
from holdfast.providers.factory import build, make
from holdfast.providers.openai.openai import converses, wants_responses
from holdfast.providers.vendors import EXTRAS, VENDORS
from holdfast.settings import VARIABLES, VENDOR_VARIABLES
from holdfast.testing.model_contract import simple_request

NOT_OURS = {"letta", "chatgpt_oauth"}  # Letta's own cloud, and a login that only their client has


def test_every_type_that_clients_know_can_be_made() -> None:
    assert set(get_args(ProviderType)) - NOT_OURS <= set(VENDORS)


@pytest.mark.parametrize("type", VENDORS)
def test_every_vendor_is_made_of_what_it_needs_and_refused_without(type: str) -> None:
    vendor = VENDORS[type]
    given = {need.partition("|")[0]: "https://models.example" for need in vendor.needs}
    parts = {part: given.pop(part, None) for part in ("api_key", "base_url")}
    model = make(type, **parts, extras=given)  # type: ignore[arg-type]
    assert model.payload(simple_request("hello"))
    if vendor.needs:
        with pytest.raises(Invalid, match=f"A provider of type {type} needs"):
            make(type)


def test_the_error_for_an_unknown_type_lists_the_known_ones() -> None:
    with pytest.raises(Invalid, match="There is no provider type 'acme'; there are openai, anthropic"):
        make("acme")


def test_every_variable_is_one_that_the_factory_reads() -> None:
    parts = ("api_key", "base_url", *EXTRAS)
    read = {f"{vendor.variable or vendor.type}_{part}" for vendor in VENDORS.values() for part in parts}
    assert {row.field for row in VENDOR_VARIABLES} <= read
    known = {row.field for row in (*VENDOR_VARIABLES, *VARIABLES)}
    for vendor in VENDORS.values():
        for need in vendor.needs:
            wanted = {f"{vendor.variable or vendor.type}_{part}" for part in need.split("|")}
            assert wanted & known, f"no variable gives {vendor.type} its {need}"


def test_a_partly_configured_cloud_is_left_out() -> None:
    assert [name for name, _ in build({"bedrock_region": "eu-west-1", "google_vertex_project": "p"})] == ["demo"]


def test_a_self_hosted_servers_url_may_lack_its_path() -> None:
    [(name, model), _] = build({"ollama_base_url": "http://localhost:11434"})
    assert name == "ollama"
    assert model._endpoint.base_url == "http://localhost:11434/v1"  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["o3", "o4-mini", "gpt-5", "gpt-5.1-codex", "gpt-5-pro", "codex-mini-latest"])
def test_openais_reasoning_models_are_called_over_responses(model: str) -> None:
    assert wants_responses(model)
    assert "input" in make("openai", api_key="k").payload(_ask(model))


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest", "llama-3"])
def test_the_others_are_called_over_chat_completions(model: str) -> None:
    assert "messages" in make("openai", api_key="k").payload(_ask(model))


def test_a_compatible_server_gets_chat_completions_unless_it_is_told_otherwise() -> None:
    url = "http://localhost:8000/v1"
    assert "messages" in make("openai", base_url=url).payload(_ask("gpt-5"))
    assert "input" in make("openai", base_url=url, extras={"wire": "responses"}).payload(_ask("llama-3"))
    assert "messages" in make("openai", api_key="k", extras={"wire": "chat"}).payload(_ask("gpt-5"))
    with pytest.raises(Invalid, match="'telegraph' is not a value of wire"):
        make("openai", api_key="k", extras={"wire": "telegraph"})


def test_models_that_cannot_hold_a_conversation_are_not_listed() -> None:
    offered = [name for name in ("gpt-5", "o3-pro", "gpt-image-1", "whisper-1", "gpt-4o-realtime") if converses(name)]
    assert offered == ["gpt-5", "o3-pro"]


def _ask(model: str) -> ModelRequest:
    return replace(simple_request("hello"), model=model)
