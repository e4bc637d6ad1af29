"""Claude on Amazon Bedrock: the Anthropic wire in Amazon's envelope.

The model is named in the URL instead of the body, requests are signed (or bear a Bedrock API key), events come in
frames. Of the models that Bedrock lists, those that speak this wire are offered.
https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-anthropic-claude-messages.html
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from holdfast.core.errors import Invalid, ModelError
from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.anthropic import info_of
from holdfast.providers.anthropic_reply import AnthropicDecoder
from holdfast.providers.anthropic_request import append, request_body
from holdfast.providers.assembly import Assembly
from holdfast.providers.aws import AwsKeys, AwsSigner, FrameSplitter
from holdfast.providers.calling import Post, call
from holdfast.providers.credentials import Credentials, bearer
from holdfast.providers.given import Given
from holdfast.providers.line import Line

VERSION = "bedrock-2023-05-31"
_IN_THE_URL = ("model", "stream")


class Bedrock:
    """Implements `ports.model.Model`. `control_url` is where models are listed; the line leads to where they run."""

    def __init__(self, line: Line, control_url: str) -> None:
        self._line = line
        self._control_url = control_url
        self._assembly = Assembly(append)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        line = self._line
        url = f"{line.base_url}/model/{quote(request.model, safe='')}/invoke-with-response-stream"
        headers = {"accept": "application/vnd.amazon.eventstream"}
        post = Post(url, headers, orjson.dumps(self.payload(request)))
        return call(line.http, post, lambda: AnthropicDecoder(line.name), line.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        body = request_body(request, self._assembly)
        return {"anthropic_version": VERSION, **{field: body[field] for field in body if field not in _IN_THE_URL}}

    async def list_models(self) -> Sequence[ModelInfo]:
        """Models that can be called by their own name, and the profiles that spread calls over regions."""
        listed = await self._line.http.get_json(f"{self._control_url}/foundation-models?byProvider=anthropic")
        models = [
            str(entry["modelId"])
            for entry in listed.get("modelSummaries") or ()
            if "ON_DEMAND" in (entry.get("inferenceTypesSupported") or ()) and entry.get("responseStreamingSupported")
        ]
        return [info_of(self._line, {"id": model}) for model in [*models, *await self._profiles()]]

    async def _profiles(self) -> list[str]:
        """An account may be allowed to list models and not these."""
        try:
            listed = await self._line.http.get_json(f"{self._control_url}/inference-profiles?maxResults=1000")
        except ModelError:
            return []
        profiles = listed.get("inferenceProfileSummaries") or ()
        return [str(one["inferenceProfileId"]) for one in profiles if "anthropic." in one["inferenceProfileId"]]

    async def close(self) -> None:
        await self._line.http.close()


def connect(given: Given) -> Bedrock:
    region = given.extras["region"]
    line = given.line(
        _credentials(given, region),
        url=given.base_url or f"https://bedrock-runtime.{region}.amazonaws.com",
        new_splitter=FrameSplitter,
    )
    return Bedrock(line, given.base_url or f"https://bedrock.{region}.amazonaws.com")


def _credentials(given: Given, region: str) -> Credentials:
    secret = given.extras.get("secret_key")
    if not secret:
        return bearer(given.api_key)
    if not (access_key := given.extras.get("access_key")):
        raise Invalid("A provider of type bedrock with a secret_key needs its access_key too.")
    return AwsSigner(AwsKeys(access_key, secret, given.extras.get("session_token")), region)
