"""The agent's archive tools on a real database: a call that is run again after a crash adds nothing twice."""

from __future__ import annotations

import asyncio

from engine.house import House, builtins_of
from holdfast.ports.stores.archive_store import PassageSearch
from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.storage.records.archive_store import SqlArchives
from holdfast.testing.script import Call, Say


async def test_an_insert_that_is_run_again_with_the_same_key_adds_nothing(house: House) -> None:
    archives = SqlArchives(house.database)
    builtins = builtins_of(house)
    conversation = await house.agent(tools=["archival_memory_insert"])

    async def twice_at_once(job: ToolJob) -> ToolOutcome:
        first, _second = await asyncio.gather(builtins.run(job), builtins.run(job))
        return first

    house.toolbox.does["archival_memory_insert"] = twice_at_once
    for _ in range(2):
        house.model.script(Call("archival_memory_insert", {"content": "the tide turns at six"}))
        house.model.script(Say("kept"))
        await house.finished(conversation)
    agent = (await house.deps.store.snapshot(conversation)).agent
    found = await archives.search(PassageSearch(org_id=agent.org_id, agent_id=agent.id))
    assert len(found) == 2  # two calls, each once
    assert len({one.passage.archive_id for one in found}) == 1
