"""`holdfast serve`: runs the HTTP server in one process."""

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

from holdfast.api.http.connection_limits import ConnectionLimits, limited_by
from holdfast.app import http_app_of, opened
from holdfast.app.private_files import CannotStart
from holdfast.cli.failures import DATABASE_ERRORS, database_error_text, fail
from holdfast.providers import factory
from holdfast.settings import Settings

OPEN_FILES = 65_536
YOUNG_OBJECTS = 10_000  # made and not yet freed, after which the garbage collector looks at them


def serve(settings: Settings) -> int:
    """Serve until interrupted. Without a password it refuses to listen on anything but this machine."""
    if settings.password is None and not _is_local(settings.host):
        print(
            f"holdfast: refusing to listen on {settings.host} without a password: anyone who can reach it could run "
            "tools.\nSet HOLDFAST_PASSWORD, or listen on 127.0.0.1.",
            file=sys.stderr,
        )
        return 2
    _allow_many_connections()
    for shutdown_signal in (signal.SIGTERM, signal.SIGINT):
        # uvicorn handles the signal and raises it again afterwards; then a graceful shutdown would look like a failure.
        signal.signal(shutdown_signal, signal.SIG_IGN)
    return run_process(_serve(settings), settings)


def run_process(work: Coroutine[Any, Any, int], settings: Settings) -> int:
    """Set up logging and run a server or worker to its end. Prints a plain reason if it cannot start."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        return uvloop.run(work)
    except CannotStart as error:
        print(f"holdfast: {error}", file=sys.stderr)
    except DATABASE_ERRORS as error:
        return fail(database_error_text(settings, error))
    return 1


def _allow_many_connections() -> None:
    """Raise the limit of open files: the usual 1,024 are too few for a thousand subscribers. Tools have another."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _connection_limits(settings: Settings) -> ConnectionLimits:
    """Connections get at most half of the files that the process may open; tools, database and models need the rest."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = settings.most_connections if files == resource.RLIM_INFINITY else min(settings.most_connections, files // 2)
    return ConnectionLimits(limit, settings.request_head_seconds, settings.request_body_seconds)


async def _serve(settings: Settings) -> int:
    async with opened(settings) as holdfast:
        config = uvicorn.Config(
            http_app_of(holdfast, settings),
            host=settings.host,
            port=settings.port,
            lifespan="off",
            log_level="warning",
            access_log=False,
            http=limited_by(_connection_limits(settings)),
            timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
        )
        collect_garbage()
        logging.getLogger("uvicorn.error").addFilter(NoCancelledErrors())
        server = HoldfastServer(config, settings, holdfast.engine.drain)
        await server.serve()
        return 0 if server.started else 1


def collect_garbage() -> None:
    """Switch the garbage collector on, but not for objects made until now: they live as long as the process.

    A young collection after every 700 new objects took two percent of the CPU under load, to find that what is new are
    cached conversations."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()


class NoCancelledErrors(logging.Filter):
    """Drops log records of requests that are cancelled by a graceful shutdown: these are not errors."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class HoldfastServer(uvicorn.Server):
    """Prints the startup banner once the port is open, and stops taking runs when shutdown begins."""

    def __init__(self, config: uvicorn.Config, settings: Settings, drain: Callable[[], None]) -> None:
        super().__init__(config)
        self._settings = settings
        self._drain = drain

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            print(startup_banner(self._settings), flush=True)

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._drain()
        await super().shutdown(sockets)  # type: ignore[arg-type]


def startup_banner(settings: Settings) -> str:
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
    names = [name for name, _, _ in factory.configured(settings.provider_values()) if name != "demo"]
    if not names:
        return "demo/rehearsal is built in; set OPENAI_API_KEY or ANTHROPIC_API_KEY for others"
    return f"of {', '.join(names)}, and demo/rehearsal"


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
