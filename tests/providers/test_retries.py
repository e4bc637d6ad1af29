"""Model calls are retried where that is safe and within bounds; timeouts and stale connections are handled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

import pytest

from holdfast.core.conversation.messages import Text
from holdfast.core.errors import ModelError
from holdfast.core.model import Delta, ReplyDone
from holdfast.ports.model import Model
from holdfast.providers.http.client import Timeouts
from holdfast.providers.http.endpoint import endpoint_for
from holdfast.providers.http.retries import Retries
from holdfast.providers.openai.chat_completions import OpenAIChat
from holdfast.testing.model_contract import simple_request
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import CutOff, Drop, Fail, FailMidStream, Hang, Say, Slow, Step


class Waits(list[float]):
    """A fake sleep that records the seconds it was asked for."""

    async def sleep(self, seconds: float) -> None:
        self.append(seconds)


@asynccontextmanager
async def served(
    *replies: list[Step], waits: Waits | None = None, timeouts: Timeouts | None = None
) -> AsyncIterator[tuple[OpenAIChat, ModelServer]]:
    retries = Retries(sleep=(waits if waits is not None else Waits()).sleep, jitter=lambda: 0.5)
    async with ModelServer() as server:
        for reply in replies:
            server.script(*reply)
        model = OpenAIChat(endpoint_for("openai", server.openai_url, retries=retries, timeouts=timeouts))
        yield model, server
        await model.close()


async def stream_all(model: Model) -> list[Delta]:
    async with aclosing(model.stream(simple_request("hello"))) as stream:
        return [delta async for delta in stream]


def text_of(deltas: list[Delta]) -> str:
    last = deltas[-1]
    assert isinstance(last, ReplyDone)
    return "".join(part.text for part in last.reply.parts if isinstance(part, Text))


async def test_an_overloaded_model_is_retried_with_growing_waits() -> None:
    waits = Waits()
    async with served([Fail(529)], [Fail(503)], [Say("Now.")], waits=waits) as (model, _):
        assert text_of(await stream_all(model)) == "Now."
    assert waits == [0.5, 1.0]


async def test_a_rate_limited_model_is_retried_after_the_wait_it_asks_for() -> None:
    waits = Waits()
    async with served([Fail.of("llm_rate_limit", retry_after_seconds=7)], [Say("Now.")], waits=waits) as (model, _):
        assert text_of(await stream_all(model)) == "Now."
    assert waits == [7.0]


async def test_a_wait_that_is_too_long_is_left_to_the_caller() -> None:
    async with served([Fail.of("llm_rate_limit", retry_after_seconds=3600)], [Say("Now.")]) as (model, server):
        with pytest.raises(ModelError) as raised:
            await stream_all(model)
    assert raised.value.retry_after_seconds == 3600
    assert len(server.received) == 1


async def test_attempts_are_counted_and_capped() -> None:
    async with served([Fail(503)], [Fail(503)], [Fail(503)], [Say("Too late.")]) as (model, server):
        with pytest.raises(ModelError, match="HTTP 503"):
            await stream_all(model)
    assert len(server.received) == Retries().attempts


@pytest.mark.parametrize("status", [400, 401, 500, 504])
async def test_other_failures_are_not_retried(status: int) -> None:
    async with served([Fail(status)], [Say("Now.")]) as (model, server):
        with pytest.raises(ModelError):
            await stream_all(model)
    assert len(server.received) == 1


@pytest.mark.parametrize("failure", [FailMidStream("llm_overloaded"), Drop(), CutOff()])
async def test_a_failure_before_the_first_token_is_retried(failure: Step) -> None:
    async with served([failure], [Say("Now.")]) as (model, _):
        assert text_of(await stream_all(model)) == "Now."


@pytest.mark.parametrize("failure", [FailMidStream("llm_overloaded"), Drop(), CutOff()])
async def test_nothing_is_retried_after_the_first_token(failure: Step) -> None:
    async with served([Say("Half"), failure], [Say("Now.")]) as (model, server):
        with pytest.raises(ModelError):
            await stream_all(model)
    assert len(server.received) == 1


async def test_silence_between_chunks_is_a_timeout() -> None:
    short = Timeouts(first_byte_seconds=5, between_chunks_seconds=0.01)
    async with served([Say("One"), Hang()], timeouts=short) as (model, server):
        with pytest.raises(ModelError) as raised:
            await stream_all(model)
        await server.wait_for_disconnect()
    assert raised.value.kind == "llm_timeout"


async def test_a_response_that_never_ends_is_a_timeout_though_it_is_never_silent() -> None:
    short = Timeouts(whole_seconds=0.3)
    async with served([Slow(0.02), Say("word " * 500)], timeouts=short) as (model, server):
        with pytest.raises(ModelError, match="the response did not end") as raised:
            await stream_all(model)
        await server.wait_for_disconnect()
    assert raised.value.kind == "llm_timeout"


async def test_a_reader_that_takes_its_time_is_not_a_silent_model() -> None:
    short = Timeouts(between_chunks_seconds=0.2)
    async with (
        served([Slow(0.01), Say("One two three")], timeouts=short) as (model, _),
        aclosing(model.stream(simple_request("hello"))) as stream,
    ):
        await anext(stream)
        await asyncio.sleep(0.3)
        assert isinstance([delta async for delta in stream][-1], ReplyDone)


async def test_a_server_that_never_answers_is_a_timeout() -> None:
    short = Timeouts(connect_seconds=0.3, first_byte_seconds=0.3)  # long enough for a busy machine to see the request
    async with served([Hang()], timeouts=short) as (model, server):
        with pytest.raises(ModelError) as raised:
            await stream_all(model)
        await server.wait_for_disconnect()
    assert raised.value.kind == "llm_timeout"


async def test_a_refused_connection_is_a_retryable_error() -> None:
    model = OpenAIChat(endpoint_for("openai", "http://127.0.0.1:9/v1", retries=Retries(attempts=1)))
    with pytest.raises(ModelError, match="connection to the model failed") as raised:
        await stream_all(model)
    await model.close()
    assert (raised.value.kind, raised.value.retryable) == ("llm_error", True)


async def test_connections_are_reused() -> None:
    async with served([Say("One.")], [Say("Two.")]) as (model, server):
        await stream_all(model)
        await stream_all(model)
        assert len(server.received) == 2
        assert server.connections == 1


async def test_a_stale_connection_is_replaced_without_a_counted_retry() -> None:
    async with forgetful_server() as url:
        model = OpenAIChat(endpoint_for("openai", url, retries=Retries(attempts=1)))
        assert text_of(await stream_all(model)) == "Hi"
        assert text_of(await stream_all(model)) == "Hi"
        await model.close()


BODY = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(BODY)


@asynccontextmanager
async def forgetful_server() -> AsyncIterator[str]:
    """A server that responds once per connection and drops it when the next request arrives."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + BODY)
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    server.close()
