"""Benchmark 3: the time of a step with a trivial sandboxed tool.

*Added* is the turn with one tool call minus a plain turn, minus the model's time for its additional reply; it has a
limit. *Whole* is the turn with the tool call minus the model's time for its two replies, so it includes everything that
Holdfast does for the request; `bench.before` compares it with that of an older version.
"""

from __future__ import annotations

import statistics

from bench.clients import HoldfastClient, ModelClient
from bench.results import Bar, Row
from bench.sampling import Setting, interleaved
from bench.stage import TURNS_PER_AGENT, opened

ROUNDS = 100
QUICK_ROUNDS = 25
TOOL_BAR = Bar("value", 12)
SOURCE = '''
def measure_depth(fathoms: int) -> str:
    """Say how deep it is.

    Args:
        fathoms: The depth.
    """
    return f"{fathoms} fathoms"
'''
CALL = [{"step": "Call", "name": "measure_depth", "arguments": {"fathoms": 7}}]


class ToolAgents:
    """Agents with the tool, a new one every few turns; each gets equal numbers of plain and tool turns."""

    def __init__(self, client: HoldfastClient, model: ModelClient, tool_id: str) -> None:
        self._client, self._model = client, model
        self._tool_id = tool_id
        self._agent_id = ""
        self._turns = TURNS_PER_AGENT

    async def _agent(self) -> str:
        if self._turns >= TURNS_PER_AGENT:
            self._agent_id = await self._client.make_agent([self._tool_id])
            self._turns = 0
        self._turns += 1
        return self._agent_id

    async def plain_turn(self) -> float:
        return await self._client.send(await self._agent())

    async def tool_turn(self) -> float:
        agent_id = await self._agent()
        await self._model.script(CALL)
        return await self._client.send(agent_id)

    async def bodies(self) -> tuple[bytes, bytes]:
        """The two model calls of a tool turn."""
        await self.tool_turn()
        first, second = await self._model.bodies(2)
        return first, second


async def measure(setting: Setting) -> list[Row]:
    async with opened(setting) as stage:
        agents = ToolAgents(stage.holdfast, stage.model, await stage.holdfast.make_tool(SOURCE))
        calling, answering = await agents.bodies()

        async def model_calling() -> float:
            await stage.model.script(CALL)
            return await stage.model.send(calling)

        taken = await interleaved(
            setting.count(ROUNDS, QUICK_ROUNDS),
            {
                "tool": agents.tool_turn,
                "plain": agents.plain_turn,
                "calling": model_calling,
                "answering": lambda: stage.model.send(answering),
            },
        )
    return _rows({name: statistics.median(samples) * 1000 for name, samples in taken.items()})


def _rows(median: dict[str, float]) -> list[Row]:
    said = ", ".join(f"{name} {value:.2f} ms" for name, value in median.items())
    added = median["tool"] - median["plain"] - median["calling"]
    whole = median["tool"] - median["calling"] - median["answering"]
    return [
        Row(measure="tool step, added to a plain turn", value=added, unit="ms", bar=TOOL_BAR, note=said),
        Row(measure="tool turn, less two model calls", value=whole, unit="ms"),
    ]
