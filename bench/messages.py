"""Benchmarks 1 and 2: the time of a one-step message and its time to first token, compared with the proxy."""

from __future__ import annotations

import statistics

from bench.results import Bar, Row
from bench.sampling import Setting, cpu_seconds, interleaved, median_ms, percentile
from bench.stage import Stage, opened

ROUNDS = 200
QUICK_ROUNDS = 40
MESSAGE_BAR = Bar("ratio", 2.6)
FIRST_TOKEN_BAR = Bar("added", 4)


async def measure(setting: Setting) -> list[Row]:
    async with opened(setting) as stage:
        body = await stage.usual_body()
        rounds = setting.count(ROUNDS, QUICK_ROUNDS)
        taken = await interleaved(
            rounds,
            {
                "holdfast": stage.on_young_agents(stage.holdfast.send),
                "proxy": lambda: stage.proxy.send(body),
                "model": lambda: stage.model.send(body),
                "holdfast first": stage.on_young_agents(stage.holdfast.stream),
                "proxy first": lambda: stage.proxy.stream(body),
            },
        )
        return [*_rows(taken), await _cpu_row(stage, rounds)]


def _rows(taken: dict[str, list[float]]) -> list[Row]:
    model = f"the model server alone takes {median_ms(taken['model']):.2f} ms of both"
    worst = f"p99 {percentile(taken['holdfast'], 0.99) * 1000:.1f} ms; {_calm(taken, 'holdfast', 'proxy')}"
    added = [ours - floor for ours, floor in zip(taken["holdfast first"], taken["proxy first"], strict=True)]
    calm = _calm(taken, "holdfast first", "proxy first")
    spread = f"median of the differences of each round: {statistics.median(added) * 1000:.2f} ms; {calm}"
    return [
        Row(
            measure="one-step message",
            value=median_ms(taken["holdfast"]),
            unit="ms",
            floor=median_ms(taken["proxy"]),
            bar=MESSAGE_BAR,
            note=f"{model}; {worst}",
        ),
        Row(
            measure="time to first token",
            value=median_ms(taken["holdfast first"]),
            unit="ms",
            floor=median_ms(taken["proxy first"]),
            bar=FIRST_TOKEN_BAR,
            note=spread,
        ),
    ]


def _calm(taken: dict[str, list[float]], ours: str, floor: str) -> str:
    """The fastest tenth of both sides, which a busy machine affects least; the limit still applies to the medians."""
    quiet, quiet_floor = (percentile(taken[side], 0.1) * 1000 for side in (ours, floor))
    return (
        f"best tenth {quiet:.1f} over {quiet_floor:.1f} ms, {quiet / quiet_floor:.2f} ×, {quiet - quiet_floor:+.1f} ms"
    )


async def _cpu_row(stage: Stage, rounds: int) -> Row:
    """How much of a message's time is CPU time; the first thing to know when tuning."""
    spent = []
    for _ in range(rounds):
        agent_id = await stage.young_agent()
        before = cpu_seconds(stage.server.pid)
        await stage.holdfast.send(agent_id)
        spent.append(cpu_seconds(stage.server.pid) - before)
    return Row(measure="CPU of a one-step message", value=median_ms(spent), unit="ms")
