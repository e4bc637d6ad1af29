"""The baseline of the benchmarks: a minimal proxy that makes one durable insert per request and calls the model.

It uses the same libraries as Holdfast (uvicorn, httptools, uvloop; aiohttp for the model; SQLite in WAL mode with
synchronous=FULL, written in a thread), so the ratio shows the cost of Holdfast itself and not of its libraries.

    python -m bench.proxy --model http://127.0.0.1:8900/v1 --database sqlite:////tmp/proxy.db

`POST /send` waits for the whole reply and returns its text; `POST /stream` forwards the model's bytes. Both
take the body of a model request. The insert is durable before the model is called, as in Holdfast.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import psycopg
import uvicorn

TABLE = "CREATE TABLE IF NOT EXISTS bench_requests (body TEXT NOT NULL)"
HEADERS = {"content-type": "application/json", "accept-encoding": "identity", "authorization": "Bearer bench"}

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def sqlite_insert(path: str) -> Callable[[str], None]:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(TABLE)

    def insert(body: str) -> None:
        connection.execute("INSERT INTO bench_requests VALUES (?)", (body,))

    return insert


def postgres_insert(url: str) -> Callable[[str], None]:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute(TABLE)

    def insert(body: str) -> None:
        connection.execute("INSERT INTO bench_requests VALUES (%s)", (body,))

    return insert


def insert_into(url: str) -> Callable[[str], None]:
    scheme, _, path = url.partition(":///")
    return sqlite_insert(path) if scheme == "sqlite" else postgres_insert(url)


class Proxy:
    def __init__(self, model_url: str, insert: Callable[[str], None]) -> None:
        self._url = f"{model_url}/chat/completions"
        self._insert = insert
        self._thread = ThreadPoolExecutor(1)
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "GET":
            return await _whole(send, b"{}")
        body = await _read(receive)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._insert, body.decode())
        answer = self._stream if scope["path"] == "/stream" else self._send
        await answer(body, send)

    @asynccontextmanager
    async def _call(self, body: bytes) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        async with self._session.post(self._url, data=body, headers=HEADERS) as response:
            yield response.content

    async def _stream(self, body: bytes, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        async with self._call(body) as content:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for chunk in content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, body: bytes, send: Send) -> None:
        async with self._call(body) as content:
            text = "".join([_text(line) async for line in content])
        await _whole(send, orjson.dumps({"text": text}))


def _text(line: bytes) -> str:
    """The text in one event of the Chat Completions API."""
    if not line.startswith(b"data: {"):
        return ""
    choices = orjson.loads(line[6:])["choices"]
    return (choices[0]["delta"].get("content") or "") if choices else ""


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def _whole(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.proxy", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", required=True, help="the base URL of the model server, with /v1")
    parser.add_argument("--database", required=True)
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    app = Proxy(options.model, insert_into(options.database))
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="warning", access_log=False, loop="uvloop", http="httptools", lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
