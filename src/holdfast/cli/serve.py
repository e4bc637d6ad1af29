"""`holdfast serve`: the HTTP server, in one process."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn
import uvloop
from sqlalchemy.exc import SQLAlchemyError

from holdfast.app import AlreadyRunning, http_app_of, opened
from holdfast.core.errors import StorageDown
from holdfast.providers import catalog
from holdfast.settings import Settings

OPEN_FILES = 65_536


def serve(settings: Settings) -> int:
    """Serve until interrupted. Refuses to be reachable from elsewhere without a password."""
    if settings.password is None and not _is_local(settings.host):
        print(
            f"holdfast: refusing to listen on {settings.host} without a password: anyone who can reach it could run "
            "tools.\nSet HOLDFAST_PASSWORD, or listen on 127.0.0.1.",
            file=sys.stderr,
        )
        return 2
    _allow_many_connections()
    for asked_to_stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked_to_stop, signal.SIG_IGN)  # uvicorn acts on it, then raises it again; stopping is no failure
    return run_process(_serve(settings), settings)


def run_process(work: Coroutine[Any, Any, int], settings: Settings) -> int:
    """Run a process of Holdfast to its end, with its log, and say plainly why it could not start."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        return uvloop.run(work)
    except AlreadyRunning as error:
        print(f"holdfast: {error}", file=sys.stderr)
    except (SQLAlchemyError, StorageDown, ImportError) as error:
        print(f"holdfast: the database cannot be used: {error}\n`holdfast doctor` says more.", file=sys.stderr)
    return 1


def _allow_many_connections() -> None:
    """Many systems allow a process 1,024 open files unless it asks for more: too few for a thousand subscribers. Tools
    have a limit of their own."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


async def _serve(settings: Settings) -> int:
    async with opened(settings) as holdfast:
        config = uvicorn.Config(
            http_app_of(holdfast, settings),
            host=settings.host,
            port=settings.port,
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
        )
        gc.freeze()  # what is there now stays to the end, so no collection needs to look at it again
        logging.getLogger("uvicorn.error").addFilter(NotOfLeaving())
        server = Greeting(config, settings, holdfast.engine.stop_taking)
        await server.serve()
        return 0 if server.started else 1


class NotOfLeaving(logging.Filter):
    """Requests that are cut off because the server leaves are no errors of anybody's."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class Greeting(uvicorn.Server):
    """Says what to do next once the port is open, and takes no more work once it is asked to stop."""

    def __init__(self, config: uvicorn.Config, settings: Settings, stop_taking: Callable[[], None]) -> None:
        super().__init__(config)
        self._settings = settings
        self._stop_taking = stop_taking

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            print(greeting(self._settings), flush=True)

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._stop_taking()
        await super().shutdown(sockets)  # type: ignore[arg-type]


def greeting(settings: Settings) -> str:
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{shown}:{settings.port}"
    return f"""\
Holdfast is listening on {url}
  data     {_without_password(settings.database_url)}
  API      base_url="{url}" for the letta-client SDKs, LETTA_BASE_URL={url} for letta
  try      the agent DemoTeller: README.md, "Five minutes to the first approved tool call"
  models   {_models(settings)}
  check    holdfast doctor
Press Ctrl+C to stop."""


def _models(settings: Settings) -> str:
    named = [name for name, _, _ in catalog.configured(settings.provider_values()) if name != "demo"]
    if not named:
        return "demo/rehearsal is built in; set OPENAI_API_KEY or ANTHROPIC_API_KEY for others"
    return f"of {', '.join(named)}, and demo/rehearsal"


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    scheme, _, user = head.partition("://")
    return f"{scheme}://{user.partition(':')[0]}@{tail}" if at else url


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
