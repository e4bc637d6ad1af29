"""Runs the benchmarks' model server as a process: `ModelServer` on uvloop, with one short reply to every request.

Other replies are posted to its `/script`. It prints its URL and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Say

FIRST_WORD = "Kelp"
REPLY = f"{FIRST_WORD} holds fast to the rock where waves pull."


async def serve() -> None:
    async with ModelServer(always=[Say(REPLY)]) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve())
