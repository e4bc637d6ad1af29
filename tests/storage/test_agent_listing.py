"""A listing of agents takes the same few SQL statements, however many agents it returns."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from holdfast.core.records import Agent, Conversation
from holdfast.ports.ids import new_id
from holdfast.ports.paging import Page
from holdfast.ports.stores.agent_store import AgentCreation, AgentFilter
from holdfast.records.agents import system_message
from holdfast.records.base_tools import ATTACHED_BY_DEFAULT, base_tools_for
from holdfast.records.blocks import NewBlock, new_block
from holdfast.storage.records.agent_store import SqlAgents
from holdfast.storage.records.organizations import DEFAULT_ACTOR, ensure_default
from holdfast.storage.schema.record_tables import metadata
from holdfast.storage.sql.database import Database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVERYTHING = frozenset({"tools", "blocks", "pending_approval"})


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/test.db")
    metadata.create_all(database.engine)
    await database.write(ensure_default, NOW)
    yield database
    database.close()


def new_agent() -> AgentCreation:
    stamp: dict[str, Any] = {"org_id": DEFAULT_ACTOR.org_id, "created_at": NOW, "updated_at": NOW}
    agent = Agent(id=new_id("agent"), name="a", system="s", model="demo/rehearsal", **stamp)
    conversation = Conversation(id=new_id("conv"), agent_id=agent.id, is_default=True, **stamp)
    return AgentCreation(
        agent_id=agent.id,
        org_id=agent.org_id,
        conversation=conversation,
        finish=lambda tools, blocks: (agent, (system_message(agent, conversation, blocks),)),
        new_blocks=(new_block(DEFAULT_ACTOR, NewBlock(label="human", value="v"), NOW),),
        base_tools=base_tools_for(DEFAULT_ACTOR, ATTACHED_BY_DEFAULT, NOW),
        tool_names=ATTACHED_BY_DEFAULT,
    )


async def test_a_listing_of_many_agents_costs_no_more_statements_than_one_of_few(database: Database) -> None:
    store = SqlAgents(database)
    for _ in range(20):
        await store.create(new_agent())
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    costs = []
    for limit in (2, 20):
        statements.clear()
        views = await store.listing(DEFAULT_ACTOR, AgentFilter(), Page(limit=limit), EVERYTHING)
        assert [len(view.tools) for view in views] == [3] * limit
        assert [len(view.blocks) for view in views] == [1] * limit
        costs.append(len(statements))
    assert costs[0] == costs[1] <= 7
