"""Claude on Amazon Bedrock: Anthropic's Messages API with Amazon's URLs, signatures and framing.

The model's name is in the URL instead of the body, requests are signed (or have a Bedrock API key), and events come in
frames. Of the models that Bedrock lists, only Anthropic's are offered.
https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-anthropic-claude-messages.html
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from holdfast.core.errors import Invalid, ModelError
from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.anthropic.anthropic import info_of
from holdfast.providers.anthropic.messages_reply import AnthropicDecoder
from holdfast.providers.anthropic.messages_request import append, request_body
from holdfast.providers.clouds.aws_signing import AwsKeys, AwsSigner, FrameSplitter
from holdfast.providers.encoding.history_cache import HistoryCache
from holdfast.providers.http.credentials import Credentials, bearer
from holdfast.providers.http.endpoint import Endpoint
from holdfast.providers.http.provider_config import ProviderConfig
from holdfast.providers.http.retries import Post, stream_with_retries
from holdfast.providers.model_entries import entries_of

VERSION = "bedrock-2023-05-31"
_NOT_IN_BODY = ("model", "stream")


class Bedrock:
    """Implements `ports.model.Model`. `control_url` is where models are listed; `endpoint` is where they run."""

    def __init__(self, endpoint: Endpoint, control_url: str) -> None:
        self._endpoint = endpoint
        self._control_url = control_url
        self._history_cache = HistoryCache(append)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        endpoint = self._endpoint
        url = f"{endpoint.base_url}/model/{quote(request.model, safe='')}/invoke-with-response-stream"
        headers = {"accept": "application/vnd.amazon.eventstream"}
        post = Post(url, headers, orjson.dumps(self.payload(request)))
        return stream_with_retries(endpoint.http, post, lambda: AnthropicDecoder(endpoint.name), endpoint.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        body = request_body(request, self._history_cache)
        return {"anthropic_version": VERSION, **{field: body[field] for field in body if field not in _NOT_IN_BODY}}

    async def list_models(self) -> Sequence[ModelInfo]:
        """Models that can be called by their own name, and inference profiles, which spread calls over regions."""
        listed = await self._endpoint.http.get_json(f"{self._control_url}/foundation-models?byProvider=anthropic")
        models = [
            str(entry["modelId"])
            for entry in entries_of(listed, "modelSummaries", "modelId")
            if "ON_DEMAND" in (entry.get("inferenceTypesSupported") or ()) and entry.get("responseStreamingSupported")
        ]
        return [info_of(self._endpoint, {"id": model}) for model in [*models, *await self._profiles()]]

    async def _profiles(self) -> list[str]:
        """Inference profiles; none if the account may not list them."""
        try:
            listed = await self._endpoint.http.get_json(f"{self._control_url}/inference-profiles?maxResults=1000")
        except ModelError:
            return []
        profiles = entries_of(listed, "inferenceProfileSummaries", "inferenceProfileId")
        return [str(one["inferenceProfileId"]) for one in profiles if "anthropic." in one["inferenceProfileId"]]

    async def close(self) -> None:
        await self._endpoint.http.close()


def connect(config: ProviderConfig) -> Bedrock:
    region = config.extras["region"]
    endpoint = config.endpoint(
        _credentials(config, region),
        url=config.base_url or f"https://bedrock-runtime.{region}.amazonaws.com",
        new_splitter=FrameSplitter,
    )
    return Bedrock(endpoint, config.base_url or f"https://bedrock.{region}.amazonaws.com")


def _credentials(config: ProviderConfig, region: str) -> Credentials:
    secret = config.extras.get("secret_key")
    if not secret:
        return bearer(config.api_key)
    if not (access_key := config.extras.get("access_key")):
        raise Invalid("A provider of type bedrock with a secret_key needs its access_key too.")
    return AwsSigner(AwsKeys(access_key, secret, config.extras.get("session_token")), region)
