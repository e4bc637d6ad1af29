"""Google Vertex AI: Gemini on its own wire and Claude on Anthropic's, in a project of Google Cloud.

Which wire is the model's choice: names that begin with `claude` are Anthropic's. The model is named in the URL, and a
token of the project's account proves who asks (`google_token`).
https://cloud.google.com/vertex-ai/generative-ai/docs/partner-models/claude
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from holdfast.core.errors import Invalid, ModelError
from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.anthropic_reply import AnthropicDecoder
from holdfast.providers.anthropic_request import append, request_body
from holdfast.providers.assembly import Assembly
from holdfast.providers.calling import Post, call
from holdfast.providers.gemini import Gemini
from holdfast.providers.given import Given
from holdfast.providers.google_token import GoogleTokens, account_of
from holdfast.providers.http import Http
from holdfast.providers.line import Line
from holdfast.providers.on_trust import on_trust

VERSION = "vertex-2023-10-16"
MAX_LISTED = 200
_PUBLISHERS = {"google": "gemini", "anthropic": "claude"}  # and how the names of their conversing models begin


class Vertex:
    """Implements `ports.model.Model`. `token_http` is what its tokens come over, if they do."""

    def __init__(self, line: Line, project: str, location: str, token_http: Http | None = None) -> None:
        self._line = line
        self._token_http = token_http
        self._place = f"{line.base_url}/v1/projects/{project}/locations/{location}/publishers"
        self._gemini = Gemini(line, lambda model: f"{self._place}/google/models/{model}", ids=False)
        self._assembly = Assembly(append)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        if not _is_claude(request.model):
            return self._gemini.stream(request)
        line = self._line
        url = f"{self._place}/anthropic/models/{request.model}:streamRawPredict"
        post = Post(url, {}, orjson.dumps(self.payload(request)))
        return call(line.http, post, lambda: AnthropicDecoder(line.name), line.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        if not _is_claude(request.model):
            return self._gemini.payload(request)
        body = request_body(request, self._assembly)
        return {"anthropic_version": VERSION, **{field: body[field] for field in body if field != "model"}}

    async def list_models(self) -> Sequence[ModelInfo]:
        """Google lists what a publisher has, not what a project may use; that is learnt by calling."""
        infos: list[ModelInfo] = []
        for publisher, front in _PUBLISHERS.items():
            try:
                url = f"{self._line.base_url}/v1beta1/publishers/{publisher}/models?pageSize={MAX_LISTED}"
                listed = await self._line.http.get_json(url)
            except ModelError:
                if publisher == "google":
                    raise
                continue
            names = [str(entry["name"]).rpartition("/")[2] for entry in listed.get("publisherModels") or ()]
            infos += [on_trust(self._line.name, self._line.type, name) for name in names if _converses(name, front)]
        return infos

    async def close(self) -> None:
        await self._line.http.close()
        if self._token_http is not None:
            await self._token_http.close()


def _is_claude(model: str) -> bool:
    return model.startswith("claude")


def _converses(name: str, front: str) -> bool:
    return name.startswith(front) and not any(word in name for word in ("embedding", "image", "tts", "live", "audio"))


def connect(given: Given) -> Vertex:
    location = given.extras["location"]
    region = "" if location == "global" else f"{location}-"
    http = Http(given.name, session=given.session, timeouts=given.timeouts)
    line = given.line(
        GoogleTokens(http, _account(given)), url=given.base_url or f"https://{region}aiplatform.googleapis.com"
    )
    return Vertex(line, given.extras["project"], location, http)


def _account(given: Given) -> Mapping[str, Any] | None:
    """The operator may name a file or rely on the machine; what a user brings is the account itself."""
    said = given.extras.get("credentials") or given.api_key
    if given.session is not None:
        if not said:
            raise Invalid("A provider of type google_vertex needs credentials: a service account's JSON.")
        return account_of(said)
    if said and not said.lstrip().startswith("{"):
        try:
            said = Path(said).read_text(encoding="utf-8")
        except OSError as missing:
            raise Invalid(f"The credentials of google_vertex cannot be read: {missing}") from missing
    return account_of(said) if said else None
