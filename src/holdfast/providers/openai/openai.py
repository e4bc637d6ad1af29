"""Calls OpenAI, or the server at its base URL, over Responses or Chat Completions depending on the model.

Reasoning models are called over Responses, where their reasoning is sent back to them; the others over Chat
Completions. A server that is only compatible is called over Chat Completions, which all such servers have. The extra
option `wire` (`chat` or `responses`) overrides both.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from holdfast.core.errors import Invalid
from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.http.credentials import bearer
from holdfast.providers.http.endpoint import Endpoint
from holdfast.providers.http.provider_config import ProviderConfig
from holdfast.providers.openai.chat_completions import OpenAIChat
from holdfast.providers.openai.quirks import COMPATIBLE, OPENAI, Quirks, unprefixed
from holdfast.providers.openai.responses_api import OpenAIResponses

ApiChoice = Literal["auto", "chat", "responses"]
API_CHOICES: dict[str, ApiChoice] = {"auto": "auto", "chat": "chat", "responses": "responses"}

_HOSTS = ("api.openai.com", ".api.openai.com", ".openai.azure.com")
_RESPONSES_MODELS = re.compile(r"o[1-9](-|$)|gpt-([5-9]|\d\d)(?!.*-chat)|codex|computer-use")

# OpenAI lists all its models; those with these words in their names cannot hold a text conversation.
_NOT_FOR_CONVERSATION = (
    "audio", "babbage", "dall-e", "davinci", "image", "instruct", "moderation", "realtime", "search", "sora",
    "transcribe", "tts", "whisper",
)  # fmt: skip


class OpenAI:
    """Implements `ports.model.Model`."""

    def __init__(
        self, endpoint: Endpoint, quirks: Quirks = OPENAI, api_choice: ApiChoice = "auto", *, is_openai: bool = True
    ) -> None:
        self._endpoint = endpoint
        self._chat = OpenAIChat(endpoint, quirks)
        self._responses = OpenAIResponses(endpoint)
        self._api_choice = api_choice
        self._is_openai = is_openai

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        return self._api_of(request.model).stream(request)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return self._api_of(request.model).payload(request)

    def _api_of(self, model: str) -> OpenAIChat | OpenAIResponses:
        use_responses = (
            self._is_openai and wants_responses(model)
            if self._api_choice == "auto"
            else self._api_choice == "responses"
        )
        return self._responses if use_responses else self._chat

    async def list_models(self) -> Sequence[ModelInfo]:
        listed = await self._chat.list_models()
        return [info for info in listed if not self._is_openai or converses(info.name)]

    async def close(self) -> None:
        await self._endpoint.http.close()


def wants_responses(model: str) -> bool:
    return _RESPONSES_MODELS.match(unprefixed(model)) is not None


def converses(model: str) -> bool:
    return not any(word in model for word in _NOT_FOR_CONVERSATION)


def api_choice_of(config: ProviderConfig) -> ApiChoice:
    choice = config.extras.get("wire") or "auto"
    if choice not in API_CHOICES:
        raise Invalid(f"{choice!r} is not a value of wire; use one of {', '.join(API_CHOICES)}.")
    return API_CHOICES[choice]


def connect(config: ProviderConfig) -> OpenAI:
    host = urlsplit(config.url).hostname or ""
    is_openai = any(host == known or host.endswith(known) for known in _HOSTS)
    endpoint = config.endpoint(
        bearer(config.api_key), embedding_name="openai" if config.name == "openai-proxy" else None
    )
    return OpenAI(endpoint, OPENAI if is_openai else COMPATIBLE, api_choice_of(config), is_openai=is_openai)
