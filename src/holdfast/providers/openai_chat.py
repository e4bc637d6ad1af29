"""The OpenAI Chat Completions wire, for OpenAI itself and for everything that speaks it.

Any compatible base URL will do (vLLM, Ollama, llama.cpp, OpenRouter, LM Studio …); Azure is a base URL and an
`api-key` header. The translation is in `openai_chat_request` and `openai_chat_reply`; here is only who is called.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.assembly import Assembly
from holdfast.providers.calling import Post, Retries, call
from holdfast.providers.http import Http, Timeouts
from holdfast.providers.openai_chat_reply import ChatDecoder
from holdfast.providers.openai_chat_request import append, is_reasoning, request_body
from holdfast.providers.windows import embedding_dimensions_of, limits_of

DEFAULT_BASE_URL = "https://api.openai.com/v1"
OPENAI_HOSTS = ("api.openai.com", ".api.openai.com", ".openai.azure.com")

# OpenAI lists everything it sells; these cannot hold a conversation over Chat Completions.
_NOT_FOR_CHAT = (
    "audio", "babbage", "codex", "computer-use", "dall-e", "davinci", "deep-research", "image", "instruct",
    "moderation", "-pro", "realtime", "search", "sora", "transcribe", "tts", "whisper",
)  # fmt: skip
_WINDOW_FIELDS = ("context_length", "max_model_len", "context_window", "max_context_length")


class OpenAIChat:
    """Implements `ports.model.Model`. `name` is the provider's name, the front of its models' handles.

    `embedding_name` is the front of its embedding models' handles, where clients expect another one.
    """

    def __init__(
        self,
        name: str,
        api_key: str | None,
        base_url: str = DEFAULT_BASE_URL,
        *,
        session: aiohttp.ClientSession | None = None,
        headers: Mapping[str, str] | None = None,
        embedding_name: str | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
    ) -> None:
        self.name = name
        self._base_url = base_url.rstrip("/")
        self._embedding_name = embedding_name or name
        authorization = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._headers = {**authorization, **(headers or {})}
        self._http = Http(name, session=session, timeouts=timeouts)
        self._retries = retries or Retries()
        self._assembly = Assembly(append)
        host = urlsplit(self._base_url).hostname or ""
        self._is_openai = any(host == known or host.endswith(known) for known in OPENAI_HOSTS)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        post = Post(f"{self._base_url}/chat/completions", self._headers, orjson.dumps(self.payload(request)))
        return call(self._http, post, lambda: ChatDecoder(self.name), self._retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._assembly, is_openai=self._is_openai)

    async def list_models(self) -> Sequence[ModelInfo]:
        listed = await self._http.get_json(f"{self._base_url}/models", headers=self._headers)
        entries = (listed.get("data") or []) if isinstance(listed, dict) else []
        named = [entry for entry in entries if isinstance(entry, dict) and self._usable(str(entry.get("id") or ""))]
        return [self._info(entry) for entry in named]

    async def close(self) -> None:
        await self._http.close()

    def _usable(self, model: str) -> bool:
        return bool(model) and not (self._is_openai and any(word in model for word in _NOT_FOR_CHAT))

    def _info(self, entry: Mapping[str, Any]) -> ModelInfo:
        model = str(entry["id"])
        embeds = "embedding" in model
        limits = limits_of(model)
        said = next((entry[field] for field in _WINDOW_FIELDS if isinstance(entry.get(field), int)), None)
        provider = self._embedding_name if embeds else self.name
        return ModelInfo(
            handle=f"{provider}/{model}",
            name=model,
            provider_name=provider,
            provider_type="openai",
            context_window=said or (limits.context_window if limits else None),
            max_output_tokens=limits.max_output_tokens if limits else None,
            endpoint=self._base_url,
            abilities=frozenset() if embeds else _abilities(model),
            kind="embedding" if embeds else "llm",
            embedding_dim=embedding_dimensions_of(model) if embeds else None,
        )


def _abilities(model: str) -> frozenset[str]:
    return frozenset({"images", "parallel_tool_calls"} | ({"reasoning"} if is_reasoning(model) else set()))
