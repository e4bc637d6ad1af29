"""A fake model server that speaks the vendors' HTTP APIs, for tests, demos and benchmarks.

It speaks OpenAI's two APIs, Anthropic's, Gemini's, and the clouds' variants of them (see `dialects`).

It replies from a script, one reply per request in order, and behaves like the built-in demo model when the script is
empty. It records every request and when its client disconnected, so that a test can check for closed connections.

    async with ModelServer() as server:
        server.script(Say("Hello"), Call("roll", {"sides": 6}))
        model = factory.make("openai", api_key="any-key", base_url=server.openai_url)

As a separate process: `python -m holdfast.testing.model_server --port 8900` prints its URL; scripts are then posted
to `/script` as `[[{"step": "Say", "text": "Hello"}], …]`, and `/received` lists the requests.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, get_args

import orjson
from aiohttp import web

from holdfast.core.model import ModelRequest, Usage
from holdfast.providers.demo.demo_model import CONTEXT_WINDOW
from holdfast.testing.counting import COUNTED_AT
from holdfast.testing.dialects import ANTHROPIC_MODELS, LISTED_AT, OPENAI_MODELS, SPOKEN_AT, Dialect
from holdfast.testing.playing import hang, pause, play
from holdfast.testing.script import Count, Drop, Fail, Hang, Say, Slow, Step, demo_steps, finish_of, usage_of
from holdfast.testing.wire_formats import anthropic_wire, openai_wire
from holdfast.testing.wire_formats.request_reading import unpaired

KEPT_REQUESTS = 1000
TIMEOUT_SECONDS = 10.0  # for a test that waits for a request or a disconnect
MAX_BODY_BYTES = 256 * 1024 * 1024
_STEPS: dict[str, type[Step]] = {kind.__name__: kind for kind in get_args(Step)}
_STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache"}


@dataclass(slots=True)
class Received:
    """A received request and how its response ended. Times are `time.monotonic()`."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    arrived_at: float = field(default_factory=time.monotonic)
    answered_at: float | None = None
    disconnected_at: float | None = None


class ModelServer:
    """Runs on loopback in the caller's loop. `always` replaces the demo model's reply when the script is empty."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, always: Sequence[Step] | None = None) -> None:
        self.received: deque[Received] = deque(maxlen=KEPT_REQUESTS)
        self.url = ""
        self.keys: set[str] | None = None  # if set, requests without one of these API keys are rejected
        self.openai_models = list(OPENAI_MODELS)
        self._host, self._port = host, port
        self._always = always
        self._script: deque[tuple[Step, ...]] = deque()
        self._count = 0
        self._gone: list[Received] = []
        self._peers: set[tuple[str, int]] = set()
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None

    @property
    def openai_url(self) -> str:
        """The base URL for clients of the OpenAI APIs; clients of Anthropic use `url`."""
        return f"{self.url}/v1"

    @property
    def gemini_url(self) -> str:
        return f"{self.url}/v1beta"

    @property
    def connections(self) -> int:
        """The number of connections over which requests arrived."""
        return len(self._peers)

    def script(self, *steps: Step) -> None:
        """Append a reply to the script; each request takes the first one left."""
        self._script.append(steps)

    async def wait_for_request(self, number: int = 1) -> Received:
        """Wait for the request with this number, counted from 1."""
        await self._until(lambda: self._count >= number)
        return self.received[number - 1 - (self._count - len(self.received))]

    async def wait_for_disconnect(self, number: int = 1) -> Received:
        """Wait for the n-th request whose client disconnected before its response was complete."""
        await self._until(lambda: len(self._gone) >= number)
        return self._gone[number - 1]

    async def __aenter__(self) -> ModelServer:
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._check_key])
        for path, dialect in SPOKEN_AT.items():
            app.router.add_post(path, partial(self._answer, dialect))
        for path, count in COUNTED_AT.items():
            app.router.add_post(path, partial(_count, count))
        for path, listing in LISTED_AT.items():
            app.router.add_get(path, partial(_list, listing))
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/script", self._add_script)
        app.router.add_get("/received", self._received_log)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self.url = f"http://{self._host}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    @web.middleware
    async def _check_key(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Reject requests without a valid key. The error repeats the rejected key, as some proxies do."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        key = request.headers.get("x-api-key") or bearer
        if self.keys is not None and key not in self.keys:
            return web.json_response(openai_wire.failure(401, f"Incorrect API key provided: {key}."), status=401)
        return await handler(request)

    async def _models(self, request: web.Request) -> web.Response:
        if "anthropic-version" in request.headers:
            return web.json_response(anthropic_wire.listing(ANTHROPIC_MODELS, CONTEXT_WINDOW))
        return web.json_response(openai_wire.listing(self.openai_models, CONTEXT_WINDOW))

    async def _answer(self, dialect: Dialect, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        received = Received(request.path, {name.lower(): text for name, text in request.headers.items()}, body)
        self.received.append(received)
        self._count += 1
        if request.transport is not None:
            self._peers.add(request.transport.get_extra_info("peername")[:2])
        self._changed.set()
        try:
            response = await self._play(request, dialect, body)
            received.answered_at = time.monotonic()
            return response
        except (asyncio.CancelledError, ConnectionError):
            received.disconnected_at = time.monotonic()
            self._gone.append(received)
            raise
        finally:
            self._changed.set()

    async def _play(self, request: web.Request, dialect: Dialect, body: Mapping[str, Any]) -> web.StreamResponse:
        asked = dialect.read(body)
        if wrong := unpaired(asked.messages):
            return web.json_response(dialect.failure(400, wrong), status=400)
        steps = self._next_steps(asked)
        wire = dialect.wire(str(body.get("model") or request.match_info.get("model", "")))
        if steps and isinstance(fail := steps[0], Fail):
            said = dialect.failure(fail.status, fail.message) if fail.body is None else fail.body
            text = said if isinstance(said, str) else orjson.dumps(said).decode()
            return web.Response(status=fail.status, text=text, headers=fail.headers, content_type="application/json")
        if not body.get("stream") and "stream" not in request.path:
            await pause(steps)
            return web.Response(body=orjson.dumps(wire.whole(steps)), content_type="application/json")
        if steps and isinstance(steps[0], Hang):
            await hang()
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await response.prepare(request)
        if await play(request, response, wire, steps):
            await response.write(wire.end(finish_of(steps), usage_of(steps)))
        if not any(isinstance(step, Drop) for step in steps):
            await response.write_eof()
        return response

    def _next_steps(self, asked: ModelRequest) -> Sequence[Step]:
        if self._script:
            return self._script.popleft()
        return demo_steps(asked) if self._always is None else self._always

    async def _add_script(self, request: web.Request) -> web.Response:
        for reply in orjson.loads(await request.read()):
            self.script(*map(_read_step, reply))
        return web.json_response({"replies": len(self._script)})

    async def _received_log(self, request: web.Request) -> web.Response:
        rows = [{"path": one.path, "body": one.body, "gone": one.disconnected_at is not None} for one in self.received]
        return web.Response(
            body=orjson.dumps({"count": self._count, "received": rows}), content_type="application/json"
        )


async def _count(
    count: Callable[[Mapping[str, Any], str], tuple[int, dict[str, Any]]], request: web.Request
) -> web.Response:
    status, said = count(orjson.loads(await request.read()), request.match_info.get("model", ""))
    return web.json_response(said, status=status)


async def _list(listing: Any, request: web.Request) -> web.Response:
    return web.json_response(listing)


def _read_step(said: dict[str, Any]) -> Step:
    kind = said.pop("step")
    return Count(Usage(**said["usage"])) if kind == "Count" else _STEPS[kind](**said)


async def _serve(host: str, port: int, always: Sequence[Step] | None) -> None:
    async with ModelServer(host=host, port=port, always=always) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await hang()


def main() -> None:
    parser = argparse.ArgumentParser(prog="holdfast.testing.model_server", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--tokens", type=int, help="always answer with so many words, for benchmarks")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="with --tokens: the wait before each word")
    options = parser.parse_args()
    always: list[Step] | None = (
        [Slow(options.delay_ms / 1000), Say(" ".join(["word"] * options.tokens))] if options.tokens else None
    )
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(options.host, options.port, always))


if __name__ == "__main__":
    main()
