"""Benchmark 8: the time from a cancel request until the client's stream ends, and the model call or the tool is gone.

During a stream, the first time ends when the client has read its stream to the end, the second when the model server
sees its connection closed. The model server runs in this process, so that all times come from one clock. During a tool,
the time ends when the tool's process and the process that it started are both gone, which pidfds signal at once. The
processes are found by the name that they set: the pids that they see are those of their sandbox's namespace.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import suppress

from bench.clients import HoldfastClient, message, new_session
from bench.results import Bar, Row
from bench.sampling import Setting, percentile, processes_named
from bench.stage import UnwatchedServer, database, model_environment
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Call, Hang, Say
from holdfast.testing.waiting import async_until

ROUNDS = 100
QUICK_ROUNDS = 20
CANCEL_BAR = Bar("value", 50)
STREAM_BAR = Bar("value", 6)
SOURCE = '''
def keep_watch(mark: str) -> str:
    """Watch for a long time.

    Args:
        mark: The name by which the watchers are known.
    """
    import ctypes, os, time
    os.fork()
    ctypes.CDLL(None).prctl(15, mark.encode(), 0, 0, 0)
    time.sleep(60)
    return "nothing came"
'''


async def measure(setting: Setting) -> list[Row]:
    rounds = setting.count(ROUNDS, QUICK_ROUNDS)
    with database(setting.database) as (ours, _):
        async with ModelServer(always=[Say("Aye.")]) as model, new_session() as session:
            with UnwatchedServer(ours, **model_environment(model.url)) as server:
                client = HoldfastClient(session, server.url)
                ended, closed = zip(
                    *[await _cancel_stream(client, model, number) for number in range(1, rounds + 1)], strict=True
                )
                agent_id = await client.make_agent([await client.make_tool(SOURCE)])
                marks = [f"watch-{os.getpid()}-{number}" for number in range(rounds)]
                tools = [await _cancel_tool(client, model, agent_id, mark) for mark in marks]
    return [
        _row("cancel mid-stream, client's stream ends, p50", ended, 0.5, STREAM_BAR),
        _row("cancel mid-stream, model call closed, p99", closed, 0.99, CANCEL_BAR),
        _row("cancel mid-tool, p99", tools, 0.99, CANCEL_BAR),
    ]


def _row(measure: str, samples: Sequence[float], share: float, bar: Bar) -> Row:
    middle, worst = percentile(samples, 0.5) * 1000, percentile(samples, 0.99) * 1000
    note = f"p50 {middle:.1f} ms, p99 {worst:.1f} ms, worst {max(samples) * 1000:.1f} ms of {len(samples)}"
    return Row(measure=measure, value=percentile(samples, share) * 1000, unit="ms", bar=bar, note=note)


async def _cancel_stream(client: HoldfastClient, model: ModelServer, number: int) -> tuple[float, float]:
    """Cancel a run whose reply has begun and hangs; `number` counts these runs. Returns how long it took until the
    client's stream ended, and until the model server saw its connection closed."""
    agent_id = await client.make_agent()
    model.script(Say("Half a sentence"), Hang())
    async with client.opened(
        f"/v1/agents/{agent_id}/messages/stream", message("Speak.", stream_tokens=True)
    ) as response:
        async for chunk in response.content.iter_any():
            if b"sentence" in chunk:
                break
        began = time.monotonic()
        cancel = asyncio.create_task(client.call("POST", f"/v1/agents/{agent_id}/messages/cancel", {}))
        await response.read()
        ended = time.monotonic() - began
        gone = await model.wait_for_disconnect(number)
        await cancel
    assert gone.disconnected_at is not None
    return ended, gone.disconnected_at - began


async def _cancel_tool(client: HoldfastClient, model: ModelServer, agent_id: str, mark: str) -> float:
    model.script(Call("keep_watch", {"mark": mark}))
    turn = asyncio.create_task(client.send(agent_id, "Watch."))
    await async_until(lambda: len(processes_named(mark)) == 2, poll_seconds=0.001)
    gone = [_gone(pid) for pid in processes_named(mark)]
    began = time.monotonic()
    cancel = asyncio.create_task(client.call("POST", f"/v1/agents/{agent_id}/messages/cancel", {}))
    ended = max(await asyncio.gather(*gone)) - began
    await cancel
    with suppress(RuntimeError):
        await turn
    return ended


async def _gone(pid: int) -> float:
    """The time at which a process that is not our child ended."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[float] = loop.create_future()
    watch = os.pidfd_open(pid)

    def note() -> None:
        loop.remove_reader(watch)
        ended.set_result(time.monotonic())

    loop.add_reader(watch, note)
    try:
        async with asyncio.timeout(10):
            return await ended
    finally:
        os.close(watch)
