"""Fuzz every route of a real server on both databases: no 5xx, no traceback, no stalled event loop.

The seed is fixed, and printed with a failure. HOLDFAST_FUZZ_SEED and HOLDFAST_FUZZ_SECONDS choose others:

    HOLDFAST_FUZZ_SEED=7 HOLDFAST_FUZZ_SECONDS=300 pytest tests/api/test_fuzz.py
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import Any

import httpx
import pytest

from fuzzing import RAW, Fuzzer, Request, routes_of
from holdfast.testing import watchdog
from server_fixture import Served

SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", "20261118"))
SECONDS = float(os.environ.get("HOLDFAST_FUZZ_SECONDS", "20"))
MOST_REQUESTS = 3_000 if SECONDS <= 30 else 1_000_000
AT_ONCE = 6
ANSWER_SECONDS = 20.0
STREAM_SECONDS = 0.2
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MOST_READ = 1 << 20
GATED = '''
def gated(text: str) -> str:
    """Say it.

    Args:
        text: what
    """
    return text
'''
# An MCP server that cannot be reached gives a 502, and the fuzzer sends only addresses where there is none.
MAY_FAIL = ("/mcp",)


def world(http: httpx.Client) -> dict[str, list[str]]:
    """One record of each kind; the keys are the names of the path parameters."""

    def made(method: str, path: str, body: Any) -> Any:
        response = http.request(method, path, json=body)
        response.raise_for_status()
        return response.json()

    tool = made("PUT", "/v1/tools/", {"source_code": GATED, "default_requires_approval": True})
    block = made("POST", "/v1/blocks/", {"label": "b", "value": "v"})
    wanted = {"model": "demo/rehearsal", "tool_ids": [tool["id"]], "block_ids": [block["id"]]}
    agents = [made("POST", "/v1/agents/", {**wanted, "name": f"fuzz{number}"}) for number in range(3)]
    archive = made("POST", "/v1/archives/", {"name": "a"})
    passage = made("POST", f"/v1/archives/{archive['id']}/passages", {"text": "t"})
    agent = agents[0]["id"]
    conversation = made("POST", f"/v1/conversations/?agent_id={agent}", {})
    made("POST", f"/v1/agents/{agent}/messages", {"input": "hello"})
    made("POST", f"/v1/agents/{agents[1]['id']}/messages", {"input": '/call gated {"text": "x"}'})
    run = made("GET", f"/v1/runs/?agent_id={agent}", None)[0]
    ids = {
        "agent_id": [one["id"] for one in agents],
        "conversation_id": [conversation["id"], "default", agent],
        "tool_id": [tool["id"]],
        "tool_name": ["gated"],
        "block_id": [block["id"]],
        "block_label": ["b"],
        "archive_id": [archive["id"]],
        "passage_id": [passage["id"]],
        "memory_id": [passage["id"]],
        "run_id": [run["id"]],
        "step_id": [made("GET", f"/v1/runs/{run['id']}/steps", None)[0]["id"]],
        "message_id": [made("GET", f"/v1/agents/{agent}/messages", None)[0]["id"]],
        "approval_id": [made("GET", "/v1/approvals", None)[0]["id"]],
        "provider_id": [made("GET", "/v1/providers/", None)[0]["id"]],
    }
    return ids | {f"{name}s": found for name, found in ids.items() if name.endswith("_id")}


async def status_of(port: int, request: Request) -> int | None:
    """The status of the response; None if the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(ConnectionError):  # the server rejected the request before it read all of it
            writer.write(request.head + request.body)
            await writer.drain()
        head = b""
        async with asyncio.timeout(ANSWER_SECONDS):
            with suppress(ConnectionError):
                while b"\r\n\r\n" not in head.removeprefix(CONTINUE) and (piece := await reader.read(65536)):
                    head += piece
        with suppress(TimeoutError, ConnectionError):  # streams may have no end
            async with asyncio.timeout(STREAM_SECONDS if b"event-stream" in head else ANSWER_SECONDS):
                read = len(head)
                while read < MOST_READ and (piece := await reader.read(65536)):
                    read += len(piece)
        line = head.removeprefix(CONTINUE).partition(b"\r\n")[0].split()
        return int(line[1]) if len(line) > 1 else None
    finally:
        writer.close()


@pytest.mark.timeout(60 + 3 * SECONDS)
def test_no_request_breaks_the_server(served: Served) -> None:
    with httpx.Client(base_url=served.url, timeout=30) as http:
        routes = routes_of(http.get("/openapi.json").json())
        fuzzer = Fuzzer(SEED, routes, world(http), f"127.0.0.1:{served.server.port}")
    broken, statuses = asyncio.run(asked(served.server.port, fuzzer))
    log = served.server.log_path.read_text()
    if "Traceback" in log:
        broken.append(log[log.index("Traceback") - 300 :][:4000])
    broken.append(watchdog.stalls(served.server.watchdog_report))
    sys.stdout.write(f"seed {SEED}: {sum(statuses.values())} requests, by status: {statuses}\n")
    report = "\n".join(one for one in broken if one)
    assert not report, f"{report}\n{statuses}"
    assert sum(statuses.values()) > len(routes), f"too few requests: {statuses}"
    assert statuses.get(200, 0) > sum(statuses.values()) // 20, f"hardly a request made sense: {statuses}"
    assert httpx.get(f"{served.url}/v1/health").status_code == 200


async def asked(port: int, fuzzer: Fuzzer) -> tuple[list[str], dict[int | None, int]]:
    """The requests that broke the server, and how often each status was returned."""
    broken: list[str] = []
    statuses: dict[int | None, int] = {}
    numbers = iter(range(MOST_REQUESTS))
    until = time.monotonic() + SECONDS

    async def ask(what: str, request: Request) -> None:
        try:
            status = await status_of(port, request)
        except TimeoutError:
            broken.append(f"no answer: {what}: {request}")
            return
        statuses[status] = statuses.get(status, 0) + 1
        if status is not None and status >= 500 and not (status == 502 and any(p in str(request) for p in MAY_FAIL)):
            broken.append(f"{status}: {what}: {request}")

    async def client() -> None:
        for number in numbers:
            if time.monotonic() > until or len(broken) > 20:
                return
            await ask(f"seed {SEED}, request {number}", fuzzer.request(number))

    odd = (ask("raw", Request(raw, b"")) for raw in RAW)
    await asyncio.gather(*odd, *(client() for _ in range(AT_ONCE)))
    return broken, statuses
