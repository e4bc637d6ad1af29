"""Runs the kill test with 200 kills under load; `make chaos KILLS=…` runs it for longer."""

from __future__ import annotations

import pytest

from chaos.storm import Plan, run_kill_test


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "plan",
    [
        Plan("sqlite", kills=50, people=40, pause_seconds=0.6, seed=20261116),
        Plan("postgres", kills=150, people=40, servers=2, workers=2, pause_seconds=1.5, seed=20261116),
    ],
    ids=lambda plan: plan.database,
)
async def test_nothing_is_lost_repeated_or_stuck(plan: Plan) -> None:
    report = await run_kill_test(plan)
    assert report.wrong == (), report.text()
    assert report.done["killed"] >= plan.kills
    assert report.counted["acknowledged"] > plan.people
    assert report.counted["effects"] > 0
    assert report.counted["streams replayed"] > 0
