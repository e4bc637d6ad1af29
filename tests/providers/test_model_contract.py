"""Every provider and every fake model passes the model contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.core.errors import ModelErrorKind
from holdfast.core.model import ModelRequest
from holdfast.ports.model import Model
from holdfast.providers.anthropic.anthropic import Anthropic
from holdfast.providers.clouds.vertex import Vertex
from holdfast.providers.demo.demo_model import Demo
from holdfast.providers.factory import make
from holdfast.providers.gemini.gemini import Gemini
from holdfast.providers.http.credentials import bearer, header
from holdfast.providers.http.endpoint import endpoint_for
from holdfast.providers.http.retries import Retries
from holdfast.providers.openai.chat_completions import OpenAIChat
from holdfast.providers.openai.responses_api import OpenAIResponses
from holdfast.testing.model_contract import ModelContract, Stage, simple_request
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import (
    STATUS_OF_KIND,
    Call,
    Count,
    CutOff,
    Drop,
    Fail,
    FailMidStream,
    Finish,
    Hang,
    Hide,
    Say,
    Step,
    Think,
)
from holdfast.testing.scripted_model import ScriptedModel

ONCE = Retries(attempts=1)


class ServerStage:
    """A real provider against the model server."""

    def __init__(self, model: Model, server: ModelServer, *cannot: type, named: str = "rehearsal") -> None:
        self.model = model
        self.cannot = frozenset(cannot)
        self._server = server
        self._named = named

    def ask(self, *steps: Step) -> ModelRequest:
        self._server.script(*steps)
        return replace(simple_request("hello"), model=self._named)

    async def closed(self) -> None:
        await self._server.wait_for_disconnect()


class ScriptedStage:
    cannot: frozenset[type] = frozenset()

    def __init__(self) -> None:
        self.scripted = ScriptedModel()
        self.model: Model = self.scripted

    def ask(self, *steps: Step) -> ModelRequest:
        self.scripted.script(*steps)
        return simple_request("hello")

    async def closed(self) -> None:
        await self.scripted.closed_early.wait()


class DemoStage:
    """Steps written as the demo model's own directives."""

    model: Model = Demo()
    cannot: frozenset[type] = frozenset({CutOff, Drop, Hang, Hide, FailMidStream, Count})

    def ask(self, *steps: Step) -> ModelRequest:
        lines = [_directive(step) for step in steps] or ["/empty"]
        return simple_request("\n".join(["/no-reasoning", *lines]))

    async def closed(self) -> None:
        raise NotImplementedError


def _directive(step: Step) -> str:
    match step:
        case Say(text=text):
            return f"/say {text}"
        case Think(text=text):
            return f"/think {text}"
        case Call(name=name):
            return f"/call {name} {step.arguments_text()}"
        case Finish():
            return "/length"
        case Fail(status=status, message=message):
            return f"/fail {_kind(status, message)}"
        case _:
            raise NotImplementedError


def _kind(status: int, message: str) -> ModelErrorKind:
    if "too long" in message:
        return "context_overflow"
    return next(kind for kind, known in STATUS_OF_KIND.items() if known == status)


class TestOpenAIChat(ModelContract):
    @pytest.fixture
    async def stage(self) -> AsyncIterator[Stage]:
        async with ModelServer() as server:
            model = OpenAIChat(endpoint_for("openai", server.openai_url, bearer("key"), retries=ONCE))
            yield ServerStage(model, server, Hide)
            await model.close()


class TestOpenAIResponses(ModelContract):
    @pytest.fixture
    async def stage(self) -> AsyncIterator[Stage]:
        async with ModelServer() as server:
            model = OpenAIResponses(endpoint_for("openai", server.openai_url, bearer("key"), retries=ONCE))
            yield ServerStage(model, server)
            await model.close()


class TestGemini(ModelContract):
    @pytest.fixture
    async def stage(self) -> AsyncIterator[Stage]:
        async with ModelServer() as server:
            model = Gemini(endpoint_for("google_ai", server.gemini_url, header("x-goog-api-key", "key"), retries=ONCE))
            yield ServerStage(model, server)
            await model.close()


class TestAnthropic(ModelContract):
    @pytest.fixture
    async def stage(self) -> AsyncIterator[Stage]:
        async with ModelServer() as server:
            model = Anthropic(endpoint_for("anthropic", server.url, header("x-api-key", "key"), retries=ONCE))
            yield ServerStage(model, server)
            await model.close()


class TestAzure(ModelContract):
    @pytest.fixture(params=["", "2024-10-21"], ids=["v1", "dated"])
    async def stage(self, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
        extras = {"api_version": request.param} if request.param else {}
        async with ModelServer() as server:
            model = make("azure", api_key="key", base_url=server.url, extras=extras, retries=ONCE)
            yield ServerStage(model, server, Hide)
            await model.close()


class TestBedrock(ModelContract):
    @pytest.fixture
    async def stage(self) -> AsyncIterator[Stage]:
        extras = {"region": "eu-west-1", "access_key": "AKID", "secret_key": "secret", "session_token": "token"}
        async with ModelServer() as server:
            model = make("bedrock", base_url=server.url, extras=extras, retries=ONCE)
            yield ServerStage(model, server, named="us.anthropic.claude-sonnet-4-5-v1:0")
            await model.close()


class TestVertex(ModelContract):
    @pytest.fixture(params=["gemini-2.5-flash", "claude-sonnet-4-5"])
    async def stage(self, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
        async with ModelServer() as server:
            endpoint = endpoint_for("google_vertex", server.url, bearer("token"), retries=ONCE)
            model = Vertex(endpoint, "project", "global")
            yield ServerStage(model, server, named=request.param)
            await model.close()


class TestScriptedModel(ModelContract):
    @pytest.fixture
    async def stage(self) -> Stage:
        return ScriptedStage()


class TestDemo(ModelContract):
    @pytest.fixture
    async def stage(self) -> Stage:
        return DemoStage()
