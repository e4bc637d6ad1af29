"""`payload` returns exactly what the vendor's server receives, for every API."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from holdfast.core.conversation.messages import Message, SystemBody, Text, UserBody
from holdfast.core.model import ModelRequest, ModelSettings, ToolSpec
from holdfast.ports.model import Model
from holdfast.providers.factory import make
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Say

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ASK = ModelRequest(
    model="gpt-4o-mini",
    messages=[
        Message("message-1", "agent-1", "conv-1", 1, MOMENT, SystemBody("Be brief.")),
        Message("message-2", "agent-1", "conv-1", 2, MOMENT, UserBody((Text("Hello"),))),
    ],
    tools=(ToolSpec("roll", "Roll a die.", {"type": "object", "properties": {}}),),
    settings=ModelSettings(temperature=0.5, extra_body={"seed": 7}),
    key="conv-1",
)


def on_the_wire(kind: str, server: ModelServer) -> Model:
    if kind == "responses":
        return make("openai", api_key="sk-secret", base_url=server.openai_url, extras={"wire": "responses"})
    urls = {"openai": server.openai_url, "anthropic": server.url, "google_ai": server.gemini_url}
    return make(kind, api_key="sk-secret", base_url=urls[kind])


@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic", "google_ai"])
async def test_the_payload_is_the_very_body_that_is_sent(kind: str) -> None:
    async with ModelServer(always=[Say("Hi")]) as server:
        model = on_the_wire(kind, server)
        payload = model.payload(ASK)
        async with aclosing(model.stream(ASK)) as deltas:
            assert [delta async for delta in deltas]
        assert server.received[0].body == payload
        assert "sk-secret" not in str(payload)
        await model.close()
