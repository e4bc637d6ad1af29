"""Benchmark of memory: what the server has resident at its start, and after five thousand messages.

What an idle stream needs is in the benchmark `log`.
"""

from __future__ import annotations

import asyncio

from bench.clients import HoldfastClient, new_session
from bench.results import Bar, Row
from bench.sampling import Setting, resident_bytes
from bench.stage import TURNS_PER_AGENT, UnwatchedServer, database, model_environment, process

MESSAGES, QUICK_MESSAGES = 5_000, 1_000
CLIENTS = 32
START_BAR, LATER_BAR = Bar("value", 100), Bar("value", 130)


async def measure(setting: Setting) -> list[Row]:
    messages = setting.count(MESSAGES, QUICK_MESSAGES)
    with (
        database(setting.database) as (url, _),
        process("bench.model") as model_url,
        UnwatchedServer(url, **model_environment(model_url)) as server,
    ):
        async with new_session() as session:
            client = HoldfastClient(session, server.url)
            await client.call("GET", "/v1/agents/")
            at_start = resident_bytes(server.pid) / 1e6
            await asyncio.gather(*(_talk(client, messages // CLIENTS) for _ in range(CLIENTS)))
            later = resident_bytes(server.pid) / 1e6
    return [
        Row(measure="memory at start", value=at_start, unit="MB", bar=START_BAR),
        Row(measure=f"memory after {messages:,} messages", value=later, unit="MB", bar=LATER_BAR),
    ]


async def _talk(client: HoldfastClient, messages: int) -> None:
    agent_id = ""
    for number in range(messages):
        if number % TURNS_PER_AGENT == 0:
            agent_id = await client.make_agent()
        await client.send(agent_id)
