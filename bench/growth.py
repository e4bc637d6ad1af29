"""Benchmark 5: the time of the 400th turn of a conversation compared with the 10th, without the model's time.

Turns of old and young conversations alternate, so that both are measured under the same load: one agent gets 390 turns,
others 5; then turns 391 to 400 of the one alternate with turns 6 to 15 of the others. The model's time is measured by
sending the same bodies directly to the model server, alternating too.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from bench.results import Bar, Row
from bench.sampling import Setting, cpu_seconds
from bench.stage import Stage, opened

OLD_TURNS, YOUNG_TURNS, MEASURED = 390, 5, 10
CONVERSATIONS = 4
QUICK_CONVERSATIONS = 1
REPLAYS = 5
GROWTH_BAR = Bar("ratio", 1.3)


@dataclass(slots=True)
class Age:
    """Samples of conversations of one age, in seconds."""

    turns: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    model: list[float] = field(default_factory=list)
    body_bytes: int = 0

    def own_ms(self) -> float:
        return (statistics.median(self.turns) - statistics.median(self.model)) * 1000


async def measure(setting: Setting) -> list[Row]:
    old, young = Age(), Age()
    async with opened(setting) as stage:
        for _ in range(setting.count(CONVERSATIONS, QUICK_CONVERSATIONS)):
            await _one_conversation(stage, old, young)
    return _rows(old, young)


async def _one_conversation(stage: Stage, old: Age, young: Age) -> None:
    elder, child = await _agent_of_age(stage, OLD_TURNS), await _agent_of_age(stage, YOUNG_TURNS)
    for _ in range(MEASURED):
        for agent_id, age in ((elder, old), (child, young)):
            await _one_turn(stage, agent_id, age)
    bodies = await stage.model.bodies(2 * MEASURED)
    old.body_bytes, young.body_bytes = len(bodies[-2]), len(bodies[-1])
    for _ in range(REPLAYS):
        for number, body in enumerate(bodies):
            (young if number % 2 else old).model.append(await stage.model.send(body))


async def _agent_of_age(stage: Stage, turns: int) -> str:
    agent_id = await stage.holdfast.make_agent()
    for _ in range(turns):
        await stage.holdfast.send(agent_id)
    return agent_id


async def _one_turn(stage: Stage, agent_id: str, age: Age) -> None:
    before = cpu_seconds(stage.server.pid)
    age.turns.append(await stage.holdfast.send(agent_id))
    age.cpu.append(cpu_seconds(stage.server.pid) - before)


def _rows(old: Age, young: Age) -> list[Row]:
    def said(age: Age) -> str:
        middle = statistics.median
        turn, model = middle(age.turns) * 1000, middle(age.model) * 1000
        return f"turn {turn:.2f} ms, model {model:.2f} ms, body {age.body_bytes:,} bytes"

    old_cpu, young_cpu = statistics.median(old.cpu) * 1000, statistics.median(young.cpu) * 1000
    return [
        Row(
            measure="400th turn over the 10th",
            value=old.own_ms(),
            unit="ms",
            floor=young.own_ms(),
            bar=GROWTH_BAR,
            note=f"400th: {said(old)}; 10th: {said(young)}",
        ),
        Row(measure="CPU of the 400th over the 10th", value=old_cpu, unit="ms", floor=young_cpu),
    ]
