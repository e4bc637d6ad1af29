"""Fixtures of the API tests: a real server over HTTP, on SQLite and on Postgres, and the official SDK as its client.

`serving` is the only place that builds the application.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from letta_client import Letta

from holdfast.api.app import make_app
from holdfast.app import http_app_of, opened
from holdfast.settings import Settings
from holdfast.testing.model_server import ModelServer
from holdfast.testing.waiting import until

MODEL = "demo/rehearsal"
START_SECONDS = 90.0


@contextmanager
def serving(database_url: str, data_dir: Path, **more: str) -> Iterator[str]:
    """Run the whole application on a free port and yield its URL."""
    environment = {
        "HOLDFAST_DATABASE": database_url,
        "HOLDFAST_DATA_DIR": str(data_dir),
        "HOLDFAST_DEMO": "false",
        "HOLDFAST_ENCRYPTION_KEY": "a key of the tests",
        **more,
    }
    app = _IDLE.pop() if _IDLE else make_app(None)
    starting: Future[uvicorn.Server] = Future()
    thread = threading.Thread(target=_serve, args=(app, Settings.from_environment(environment), starting), daemon=True)
    thread.start()
    server = starting.result(START_SECONDS)
    until(lambda: server.started or not thread.is_alive(), "the server's start")
    assert server.started, "the server did not start"
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)
        _IDLE.append(app)


# FastAPI builds an application's routes at their first request, which takes longer than most tests, so applications
# are used again.
_IDLE: list[FastAPI] = []


def _serve(app: FastAPI, settings: Settings, starting: "Future[uvicorn.Server]") -> None:
    async def serve() -> None:
        async with opened(settings) as holdfast:
            dressed = http_app_of(holdfast, settings, app)
            server = uvicorn.Server(
                uvicorn.Config(dressed, host="127.0.0.1", port=0, lifespan="off", log_level="warning")
            )
            starting.set_result(server)
            await server.serve()

    try:
        asyncio.run(serve())
    except BaseException as error:
        if not starting.done():
            starting.set_exception(error)
        raise


@pytest.fixture
def address(database_url: str, tmp_path: Path) -> Iterator[str]:
    with serving(database_url, tmp_path) as base_url:
        yield base_url


@pytest.fixture
def serving_without_a_key(database_url: str, tmp_path: Path) -> Iterator[str]:
    with serving(database_url, tmp_path, HOLDFAST_ENCRYPTION_KEY="") as base_url:
        yield base_url


@pytest.fixture
def client(address: str) -> Iterator[Letta]:
    with Letta(base_url=address, api_key="any", max_retries=0) as sdk:
        yield sdk


@pytest.fixture
def http(address: str) -> Iterator[httpx.Client]:
    """A plain HTTP client, which sends what an older client or a script would."""
    with httpx.Client(base_url=address, headers={"user-agent": "curl/8.0"}, timeout=30) as plain:
        yield plain


@pytest.fixture
def vendor() -> Iterator[ModelServer]:
    """A fake model server that speaks the vendors' protocols, in a thread with its own event loop. Tests script it."""
    loop, up = asyncio.new_event_loop(), threading.Event()
    server, down = ModelServer(), asyncio.Event()

    async def serve() -> None:
        async with server:
            up.set()
            await down.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert up.wait(START_SECONDS)
    yield server
    loop.call_soon_threadsafe(down.set)
    thread.join(START_SECONDS)
    loop.close()
