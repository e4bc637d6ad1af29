"""`holdfast worker`: drives runs that other processes accept, on the same Postgres database."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import replace

from holdfast.app import opened
from holdfast.cli.serve import collect_garbage, run_process
from holdfast.settings import Settings


def worker(settings: Settings) -> int:
    """Work until interrupted."""
    if settings.database_url.startswith("sqlite"):
        print(
            "holdfast: a worker shares a Postgres with its servers; on SQLite, `holdfast serve` drives all runs.\n"
            "Set HOLDFAST_DATABASE=postgresql://…, the same as the servers'.",
            file=sys.stderr,
        )
        return 2
    if settings.most_runs == 0:
        print("holdfast: a worker with HOLDFAST_MAX_RUNS=0 would do nothing. Leave it unset here.", file=sys.stderr)
        return 2
    return run_process(_work(replace(settings, demo=False)), settings)


async def _work(settings: Settings) -> int:
    stop = asyncio.Event()
    for shutdown_signal in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(shutdown_signal, stop.set)
    async with opened(settings):
        collect_garbage()
        print(f"Holdfast worker is ready, for up to {settings.most_runs} runs at once.", flush=True)
        await stop.wait()
    return 0
