"""What a process remembers of a conversation is compared by two numbers, so every writer raises one of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from letta_client import Letta

import holdfast.storage
from api.conftest import MODEL, serving
from engine.house import opened
from holdfast.core.conversation.messages import SystemBody
from holdfast.ports.stores.run_store import Snapshot
from holdfast.records.agent_patch import AgentPatch
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.runs.snapshots import read_snapshot
from holdfast.storage.sql.database import make_engine
from holdfast.testing.script import Say

# What a snapshot is read from, besides messages, context and ledger, which only change together with a version.
READ = {"agents", "agent_tools", "agent_blocks", "tools", "blocks", "conversations", "allowances"}
WRITES = {"insert", "update", "delete", "set_where", "attach_all", "_replace"}
RAISES = {"raise_of_agents", "raise_of_tools", "raise_of_block", "RAISED", "write_agent", "write_tool"}

# Writers that need not raise the revision.
EXEMPT = {
    "create_agent": "nothing remembers an agent that is new",
    "_append_messages": "part of creating an agent",
    "_replace_tools": "its caller writes the agent",
    "delete_agent": "the run cannot be inserted",
    "insert_block": "nothing is attached to a new block",
    "insert_conversation": "nothing remembers a conversation that is new",
    "fork": "nothing remembers a conversation that is new",
    "insert_if_missing": "no agent has a new tool",
    "_come_to_rest": "how the last run ended is not decided on",
    "_move_conversation": "it is the version",
    "_write_allowances": "written with an answer, which raises the version",
}


def writers() -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of the storage that write to one of these tables."""
    for path in sorted(Path(holdfast.storage.__path__[0]).rglob("*.py")):
        if "migrations" in path.parts:
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and any(map(_writes, ast.walk(function))):
                yield f"{path.name}: {function.name}", function


def _writes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in WRITES and any(isinstance(given, ast.Name) and given.id in READ for given in node.args)


def test_every_writer_of_what_is_read_raises_the_revision_or_the_version() -> None:
    found = dict(writers())
    assert len(found) > 15
    for where, function in found.items():
        names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
        named = {
            node.arg if isinstance(node, ast.keyword) else getattr(node, "value", None) for node in ast.walk(function)
        }
        advances = "version" in named
        assert names & RAISES or advances or function.name in EXEMPT, where
    assert set(EXEMPT) <= {function.name for function in found.values()}


SOURCE = '''
def look(where: str) -> str:
    """Look somewhere.

    Args:
        where: Where.
    """
    return where
'''


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Iterator[Site]:
    with serving(database_url, tmp_path) as url:
        yield Site(database_url, Letta(base_url=url))


class Site:
    """An agent with a tool and a block, and a conversation of its own."""

    def __init__(self, database_url: str, client: Letta) -> None:
        self.client = client
        self.block = client.blocks.create(label="notes", value="one")
        self.spare_block = client.blocks.create(label="spare", value="one")
        self.tool = client.tools.create(source_code=SOURCE)
        self.spare_tool = client.tools.create(source_code=SOURCE.replace("look", "peek"))
        self.agent = client.agents.create(model=MODEL, block_ids=[self.block.id], tool_ids=[self.tool.id])
        self.conversation = client.conversations.create(agent_id=self.agent.id)
        self._engine = make_engine(database_url)

    def snapshot(self) -> Snapshot:
        with self._engine.connect() as connection:
            return read_snapshot(connection, self.conversation.id)


CHANGES: dict[str, Callable[[Site], Any]] = {
    "system prompt": lambda s: s.client.agents.update(s.agent.id, system="Other."),
    "tool rules": lambda s: s.client.agents.update(
        s.agent.id, tool_rules=[{"type": "requires_approval", "tool_name": "look"}]
    ),
    "approval of a tool": lambda s: s.client.agents.tools.update_approval(
        "look", agent_id=s.agent.id, body_requires_approval=True
    ),
    "attached tool": lambda s: s.client.agents.tools.attach(s.spare_tool.id, agent_id=s.agent.id),
    "detached tool": lambda s: s.client.agents.tools.detach(s.tool.id, agent_id=s.agent.id),
    "changed tool": lambda s: s.client.tools.update(s.tool.id, source_code=SOURCE + "\n"),
    "tool put again": lambda s: s.client.tools.upsert(source_code=SOURCE + "\n"),
    "deleted tool": lambda s: s.client.tools.delete(s.tool.id),
    "attached block": lambda s: s.client.agents.blocks.attach(s.spare_block.id, agent_id=s.agent.id),
    "detached block": lambda s: s.client.agents.blocks.detach(s.block.id, agent_id=s.agent.id),
    "changed block": lambda s: s.client.blocks.update(s.block.id, value="two"),
    "changed block of an agent": lambda s: s.client.agents.blocks.update("notes", agent_id=s.agent.id, value="two"),
    "deleted block": lambda s: s.client.blocks.delete(s.block.id),
    "model of a conversation": lambda s: s.client.conversations.update(
        s.conversation.id, model_settings={"provider_type": "openai", "parallel_tool_calls": True}
    ),
    "message": lambda s: list(s.client.conversations.messages.create(s.conversation.id, input="hi", streaming=False)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_a_snapshot_changes_one_of_its_numbers(site: Site, change: str) -> None:
    before = site.snapshot()
    CHANGES[change](site)
    after = site.snapshot()
    assert after != before
    assert (after.version, after.revision) != (before.version, before.revision)


def test_a_tool_that_is_put_again_unchanged_touches_no_agent(site: Site) -> None:
    before = site.snapshot()
    site.client.tools.upsert(source_code=SOURCE)
    assert site.snapshot().revision == before.revision


async def test_the_next_message_is_accepted_without_reading_and_after_a_change_with_it(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent()
        house.model.script(Say("one"))
        await house.finished(conversation)
        reads = 0
        snapshot = house.deps.store.snapshot

        async def counted(conversation_id: str, known_version: int | None = None) -> Snapshot:
            nonlocal reads
            reads += 1
            return await snapshot(conversation_id, known_version)

        house.deps.store.snapshot = counted  # type: ignore[method-assign]
        house.model.script(Say("two"))
        await house.finished(conversation)
        assert reads == 0
        agent_id = (await snapshot(conversation)).agent.id
        await house.agents.change(DEFAULT_ACTOR, agent_id, AgentPatch(system="You are a lighthouse."))
        house.model.script(Say("three"))
        await house.finished(conversation)
        assert reads == 1
        system = house.model.requests[-1].messages[0].body
        assert isinstance(system, SystemBody)
        assert "lighthouse" in system.text
