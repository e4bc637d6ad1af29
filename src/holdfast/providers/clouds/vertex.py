"""Google Vertex AI: Gemini over its own API and Claude over Anthropic's, in a Google Cloud project.

Models whose names begin with `claude` are called over Anthropic's API, all others over Gemini's. The model's name is in
the URL, and requests carry a token of the project's account (`google_token`).
https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from holdfast.core.errors import Invalid, ModelError
from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.anthropic.messages_reply import AnthropicDecoder
from holdfast.providers.anthropic.messages_request import append, request_body
from holdfast.providers.clouds.google_token import GoogleTokens, account_of
from holdfast.providers.encoding.history_cache import HistoryCache
from holdfast.providers.gemini.gemini import Gemini
from holdfast.providers.http.client import Http
from holdfast.providers.http.endpoint import Endpoint
from holdfast.providers.http.provider_config import ProviderConfig
from holdfast.providers.http.retries import Post, stream_with_retries
from holdfast.providers.model_entries import entries_of
from holdfast.providers.unlisted_models import unlisted_model

VERSION = "vertex-2023-10-16"
MAX_LISTED = 200
_PUBLISHERS = {"google": "gemini", "anthropic": "claude"}  # publishers, and the prefix of their chat models' names


class Vertex:
    """Implements `ports.model.Model`. `token_http` fetches access tokens, if any; it is closed too."""

    def __init__(self, endpoint: Endpoint, project: str, location: str, token_http: Http | None = None) -> None:
        self._endpoint = endpoint
        self._token_http = token_http
        self._publishers_url = f"{endpoint.base_url}/v1/projects/{project}/locations/{location}/publishers"
        self._gemini = Gemini(endpoint, lambda model: f"{self._publishers_url}/google/models/{model}", ids=False)
        self._history_cache = HistoryCache(append)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        if not _is_claude(request.model):
            return self._gemini.stream(request)
        endpoint = self._endpoint
        url = f"{self._publishers_url}/anthropic/models/{request.model}:streamRawPredict"
        post = Post(url, {}, orjson.dumps(self.payload(request)))
        return stream_with_retries(endpoint.http, post, lambda: AnthropicDecoder(endpoint.name), endpoint.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        if not _is_claude(request.model):
            return self._gemini.payload(request)
        body = request_body(request, self._history_cache)
        return {"anthropic_version": VERSION, **{field: body[field] for field in body if field != "model"}}

    async def list_models(self) -> Sequence[ModelInfo]:
        """All chat models of the publishers. Google does not list which of them the project may use."""
        infos: list[ModelInfo] = []
        for publisher, prefix in _PUBLISHERS.items():
            try:
                url = f"{self._endpoint.base_url}/v1beta1/publishers/{publisher}/models?pageSize={MAX_LISTED}"
                listed = await self._endpoint.http.get_json(url)
            except ModelError:
                if publisher == "google":
                    raise
                continue
            names = [str(entry["name"]).rpartition("/")[2] for entry in entries_of(listed, "publisherModels", "name")]
            infos += [
                unlisted_model(self._endpoint.name, self._endpoint.type, name)
                for name in names
                if _is_chat_model(name, prefix)
            ]
        return infos

    async def close(self) -> None:
        await self._endpoint.http.close()
        if self._token_http is not None:
            await self._token_http.close()


def _is_claude(model: str) -> bool:
    return model.startswith("claude")


def _is_chat_model(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and not any(word in name for word in ("embedding", "image", "tts", "live", "audio"))


def connect(config: ProviderConfig) -> Vertex:
    location = config.extras["location"]
    region = "" if location == "global" else f"{location}-"
    http = Http(config.name, session=config.session, timeouts=config.timeouts)
    endpoint = config.endpoint(
        GoogleTokens(http, _account(config)), url=config.base_url or f"https://{region}aiplatform.googleapis.com"
    )
    return Vertex(endpoint, config.extras["project"], location, http)


def _account(config: ProviderConfig) -> Mapping[str, Any] | None:
    """The account. The operator may name a file or use the machine's account (None); a user must give the JSON."""
    credentials = config.extras.get("credentials") or config.api_key
    if config.session is not None:
        if not credentials:
            raise Invalid("A provider of type google_vertex needs credentials: a service account's JSON.")
        return account_of(credentials)
    if credentials and not credentials.lstrip().startswith("{"):
        try:
            credentials = Path(credentials).read_text(encoding="utf-8")
        except OSError as missing:
            raise Invalid(f"The credentials of google_vertex cannot be read: {missing}") from missing
    return account_of(credentials) if credentials else None
