"""A call is tried again where that is safe, so often and no more; time-outs and stale connections are met."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

import pytest

from holdfast.core.errors import ModelError
from holdfast.core.messages import Text
from holdfast.core.model import Delta, ReplyDone
from holdfast.ports.model import Model
from holdfast.providers.calling import Retries
from holdfast.providers.http import Timeouts
from holdfast.providers.line import line_to
from holdfast.providers.openai_chat import OpenAIChat
from holdfast.testing.model_contract import simple_request
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import CutOff, Drop, Fail, FailMidStream, Hang, Say, Slow, Step


class Waits(list[float]):
    """A sleep that only notes how long it would have been."""

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
        model = OpenAIChat(line_to("openai", server.openai_url, retries=retries, timeouts=timeouts))
        yield model, server
        await model.close()


async def heard(model: Model) -> list[Delta]:
    async with aclosing(model.stream(simple_request("hello"))) as stream:
        return [delta async for delta in stream]


def text_of(deltas: list[Delta]) -> str:
    last = deltas[-1]
    assert isinstance(last, ReplyDone)
    return "".join(part.text for part in last.reply.parts if isinstance(part, Text))


async def test_an_overloaded_model_is_tried_again_with_growing_waits() -> None:
    waits = Waits()
    async with served([Fail(529)], [Fail(503)], [Say("Now.")], waits=waits) as (model, _):
        assert text_of(await heard(model)) == "Now."
    assert waits == [0.5, 1.0]


async def test_a_rate_limited_model_is_given_the_wait_it_asks_for() -> None:
    waits = Waits()
    async with served([Fail.of("llm_rate_limit", retry_after_seconds=7)], [Say("Now.")], waits=waits) as (model, _):
        assert text_of(await heard(model)) == "Now."
    assert waits == [7.0]


async def test_a_wait_that_is_too_long_is_left_to_the_caller() -> None:
    async with served([Fail.of("llm_rate_limit", retry_after_seconds=3600)], [Say("Now.")]) as (model, server):
        with pytest.raises(ModelError) as raised:
            await heard(model)
    assert raised.value.retry_after_seconds == 3600
    assert len(server.received) == 1


async def test_attempts_are_counted_and_capped() -> None:
    async with served([Fail(503)], [Fail(503)], [Fail(503)], [Say("Too late.")]) as (model, server):
        with pytest.raises(ModelError, match="HTTP 503"):
            await heard(model)
    assert len(server.received) == Retries().attempts


@pytest.mark.parametrize("status", [400, 401, 500, 504])
async def test_other_failures_are_not_tried_again(status: int) -> None:
    async with served([Fail(status)], [Say("Now.")]) as (model, server):
        with pytest.raises(ModelError):
            await heard(model)
    assert len(server.received) == 1


@pytest.mark.parametrize("accident", [FailMidStream("llm_overloaded"), Drop(), CutOff()])
async def test_an_accident_before_the_first_token_is_tried_again(accident: Step) -> None:
    async with served([accident], [Say("Now.")]) as (model, _):
        assert text_of(await heard(model)) == "Now."


@pytest.mark.parametrize("accident", [FailMidStream("llm_overloaded"), Drop(), CutOff()])
async def test_nothing_is_tried_again_after_the_first_token(accident: Step) -> None:
    async with served([Say("Half"), accident], [Say("Now.")]) as (model, server):
        with pytest.raises(ModelError):
            await heard(model)
    assert len(server.received) == 1


async def test_silence_between_chunks_is_a_timeout() -> None:
    short = Timeouts(first_byte_seconds=5, between_chunks_seconds=0.01)
    async with served([Say("One"), Hang()], timeouts=short) as (model, server):
        with pytest.raises(ModelError) as raised:
            await heard(model)
        await server.wait_for_disconnect()
    assert raised.value.kind == "llm_timeout"


async def test_an_answer_that_does_not_come_to_its_end_is_a_timeout_though_it_is_never_silent() -> None:
    short = Timeouts(whole_seconds=0.3)
    async with served([Slow(0.02), Say("word " * 500)], timeouts=short) as (model, server):
        with pytest.raises(ModelError, match="did not come to its end") as raised:
            await heard(model)
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
            await heard(model)
        await server.wait_for_disconnect()
    assert raised.value.kind == "llm_timeout"


async def test_a_server_that_is_not_there_is_a_failed_connection() -> None:
    model = OpenAIChat(line_to("openai", "http://127.0.0.1:9/v1", retries=Retries(attempts=1)))
    with pytest.raises(ModelError, match="connection to the model failed") as raised:
        await heard(model)
    await model.close()
    assert (raised.value.kind, raised.value.retryable) == ("llm_error", True)


async def test_connections_are_used_again() -> None:
    async with served([Say("One.")], [Say("Two.")]) as (model, server):
        await heard(model)
        await heard(model)
        assert len(server.received) == 2
        assert server.connections == 1


async def test_a_stale_connection_is_replaced_without_a_counted_retry() -> None:
    async with forgetful_server() as url:
        model = OpenAIChat(line_to("openai", url, retries=Retries(attempts=1)))
        assert text_of(await heard(model)) == "Hi"
        assert text_of(await heard(model)) == "Hi"
        await model.close()


BODY = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(BODY)


@asynccontextmanager
async def forgetful_server() -> AsyncIterator[str]:
    """Answers once per connection, promises to keep it, and drops it when the next request arrives."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + BODY)
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    server.close()
