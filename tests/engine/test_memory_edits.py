"""Memory edits of tools are written with the result, and never overwrite a change by another writer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.house import House, builtins_of
from holdfast.core.conversation.messages import SystemBody, ToolReturnsBody
from holdfast.core.records import Block
from holdfast.ports.toolbox import MemoryEdit, ToolJob, ToolOutcome
from holdfast.records.blocks import BlockPatch, Blocks, NewBlock
from holdfast.storage.records.block_store import SqlBlocks
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.script import Call, Say

HUMAN = NewBlock(label="human", value="Name: Ada")


async def with_memory(house: House, *names: str) -> str:
    """An agent with these base tools, which truly run, and one block."""
    builtins = builtins_of(house)
    for name in names:
        house.toolbox.does[name] = builtins.run
    return await house.agent(tools=list(names), memory_blocks=[HUMAN])


async def blocks_of(house: House, conversation: str) -> dict[str, str]:
    return {block.label: block.value for block in (await house.deps.store.snapshot(conversation)).blocks}


async def by_hand(house: House, conversation: str, **given: Any) -> None:
    """A person changes the first block, as through the API."""
    block = (await house.deps.store.snapshot(conversation)).blocks[0]
    await Blocks(SqlBlocks(house.database), house.deps.clock).change(DEFAULT_ACTOR, block.id, BlockPatch(**given))


async def results(house: House, conversation: str) -> list[tuple[str, str]]:
    context = (await house.deps.store.snapshot(conversation)).context or ()
    bodies = [message.body for message in context if isinstance(message.body, ToolReturnsBody)]
    return [(result.status, str(result.content)) for body in bodies for result in body.results]


async def system_text(house: House, conversation: str) -> str:
    context = (await house.deps.store.snapshot(conversation)).context or ()
    assert isinstance(context[0].body, SystemBody)
    return context[0].body.text


async def test_an_edit_is_written_with_its_result_and_the_model_sees_it_at_once(house: House) -> None:
    conversation = await with_memory(house, "memory_insert")
    house.model.script(Call("memory_insert", {"label": "human", "new_string": "Likes: tea"}))
    house.model.script(Say("noted"))
    await house.finished(conversation)
    assert await blocks_of(house, conversation) == {"human": "Name: Ada\nLikes: tea"}
    assert "Likes: tea" in await system_text(house, conversation)


@pytest.mark.parametrize(
    "call",
    [
        Call("memory_insert", {"label": "human", "new_string": "Likes: tea"}),
        Call("memory_replace", {"label": "human", "old_string": "Ada", "new_string": "Eve"}),
        Call("memory_rethink", {"label": "human", "new_memory": "Nothing known"}),
        Call("memory", {"command": "insert", "path": "/memories/human", "insert_text": "Likes: tea"}),
        Call("memory", {"command": "delete", "path": "/memories/human"}),
        Call("memory", {"command": "rename", "old_path": "/memories/human", "new_path": "/memories/person"}),
    ],
    ids=lambda call: f"{call.name} {call.arguments.get('command', '')}",
)
async def test_what_a_person_wrote_while_the_tool_worked_stays_and_the_model_is_told(house: House, call: Call) -> None:
    conversation = await with_memory(house, call.name)
    builtin = house.toolbox.does[call.name]

    async def interrupted(job: ToolJob) -> str | ToolOutcome:
        outcome = await builtin(job)
        await by_hand(house, conversation, value="Name: Ada Lovelace")
        return outcome

    house.toolbox.does[call.name] = interrupted
    house.model.script(call)
    house.model.script(Say("I see"))
    run = await house.finished(conversation)
    assert run.stop_reason == "end_turn"
    assert await blocks_of(house, conversation) == {"human": "Name: Ada Lovelace"}
    [(status, text)] = await results(house, conversation)
    assert status == "error"
    assert "Another writer changed the memory block human meanwhile" in text
    assert "it now reads:\nName: Ada Lovelace" in text
    assert "Ada Lovelace" in await system_text(house, conversation)


async def test_the_model_can_make_the_edit_again_on_what_it_was_told(house: House) -> None:
    conversation = await with_memory(house, "memory_insert")
    builtin = house.toolbox.does["memory_insert"]

    async def interrupted_once(job: ToolJob) -> str | ToolOutcome:
        outcome = await builtin(job)
        if len(house.toolbox.calls) == 1:
            await by_hand(house, conversation, value="Name: Ada Lovelace")
        return outcome

    house.toolbox.does["memory_insert"] = interrupted_once
    for _ in range(2):
        house.model.script(Call("memory_insert", {"label": "human", "new_string": "Likes: tea"}))
    house.model.script(Say("noted"))
    await house.finished(conversation)
    assert await blocks_of(house, conversation) == {"human": "Name: Ada Lovelace\nLikes: tea"}
    assert [status for status, _ in await results(house, conversation)] == ["error", "success"]


async def test_an_edit_of_a_person_earlier_in_the_run_is_read_before_the_model_makes_its_own(house: House) -> None:
    """The person wrote while an unrelated tool was at work."""
    builtins = builtins_of(house)
    house.toolbox.does["memory_rethink"] = builtins.run
    conversation = await house.agent("look", tools=["memory_rethink"], memory_blocks=[HUMAN])

    async def look(_job: ToolJob) -> str:
        await by_hand(house, conversation, value="Name: Ada Lovelace")
        return "seen"

    house.toolbox.does["look"] = look
    house.model.script(Call("look"))
    house.model.script(Call("memory_rethink", {"label": "human", "new_memory": "Nothing"}))
    house.model.script(Say("I see"))
    await house.finished(conversation)
    read = ["Ada Lovelace" in str(request.messages[0].body) for request in house.model.requests]
    assert read == [False, True, False]
    assert await blocks_of(house, conversation) == {"human": "Nothing"}


async def test_a_block_that_became_read_only_meanwhile_is_left_alone(house: House) -> None:
    conversation = await with_memory(house, "memory_insert")
    builtin = house.toolbox.does["memory_insert"]

    async def interrupted(job: ToolJob) -> str | ToolOutcome:
        outcome = await builtin(job)
        await by_hand(house, conversation, read_only=True)
        return outcome

    house.toolbox.does["memory_insert"] = interrupted
    house.model.script(Call("memory_insert", {"label": "human", "new_string": "x"}))
    house.model.script(Say("I see"))
    await house.finished(conversation)
    assert await blocks_of(house, conversation) == {"human": "Name: Ada"}


async def test_a_tool_of_a_user_keeps_its_result_when_its_edit_came_too_late(house: House) -> None:
    conversation = await house.agent("send", memory_blocks=[HUMAN])

    async def send(job: ToolJob) -> ToolOutcome:
        block = job.blocks[0]
        await by_hand(house, conversation, value="Name: Ada Lovelace")
        return ToolOutcome("success", "sent", edits=(MemoryEdit(block, replace(block, value="sent one")),))

    house.toolbox.does["send"] = send
    house.model.script(Call("send"))
    house.model.script(Say("done"))
    await house.finished(conversation)
    [(status, text)] = await results(house, conversation)
    assert status == "success"
    assert text.startswith("sent\n[Another writer changed the memory block human meanwhile")
    assert await blocks_of(house, conversation) == {"human": "Name: Ada Lovelace"}


async def test_the_memory_tool_makes_renames_and_lets_go_of_blocks(house: House) -> None:
    conversation = await with_memory(house, "memory")
    plan = {"command": "create", "path": "/memories/plan", "file_text": "Step 1", "description": "What to do"}
    steps: list[tuple[dict[str, Any], dict[str, str]]] = [
        (plan, {"human": "Name: Ada", "plan": "Step 1"}),
        (plan, {"human": "Name: Ada", "plan": "Step 1"}),  # refused: it is there
        (
            {"command": "str_replace", "path": "plan", "old_string": "1", "new_string": "2"},
            {"human": "Name: Ada", "plan": "Step 2"},
        ),
        ({"command": "rename", "old_path": "plan", "new_path": "goal"}, {"human": "Name: Ada", "goal": "Step 2"}),
        ({"command": "delete", "path": "/memories/human"}, {"goal": "Step 2"}),
        ({"command": "view"}, {"goal": "Step 2"}),
    ]
    for arguments, expected in steps:
        house.model.script(Call("memory", arguments))
        house.model.script(Say("ok"))
        await house.finished(conversation)
        assert await blocks_of(house, conversation) == expected, arguments
    told = await results(house, conversation)
    assert [status for status, _ in told] == ["success", "error", "success", "success", "success", "success"]
    assert told[-1] == ("success", "/memories/goal")
    assert "<goal>" in await system_text(house, conversation)
    assert "Ada" not in await system_text(house, conversation)


async def test_a_block_that_a_person_made_with_the_same_label_is_not_doubled(house: House) -> None:
    conversation = await with_memory(house, "memory")
    builtin = house.toolbox.does["memory"]

    async def interrupted(job: ToolJob) -> str | ToolOutcome:
        outcome = await builtin(job)
        records = Blocks(SqlBlocks(house.database), house.deps.clock)
        made = await records.create(DEFAULT_ACTOR, NewBlock(label="plan", value="mine"))
        await house.agents.attach_block(DEFAULT_ACTOR, job.agent_id, made.id)
        return outcome

    house.toolbox.does["memory"] = interrupted
    house.model.script(Call("memory", {"command": "create", "path": "plan", "file_text": "the model's"}))
    house.model.script(Say("I see"))
    await house.finished(conversation)
    assert await blocks_of(house, conversation) == {"human": "Name: Ada", "plan": "mine"}


async def test_two_edits_of_one_result_are_written_together_or_not_at_all(house: House) -> None:
    conversation = await house.agent("both", memory_blocks=[HUMAN, NewBlock(label="persona", value="kind")])

    async def both(job: ToolJob) -> ToolOutcome:
        await by_hand(house, conversation, value="changed by hand")

        def edit(block: Block) -> MemoryEdit:
            return MemoryEdit(block, replace(block, value="by the tool"))

        return ToolOutcome("success", "done", edits=tuple(edit(block) for block in reversed(job.blocks)))

    house.toolbox.does["both"] = both
    house.model.script(Call("both"))
    house.model.script(Say("done"))
    await house.finished(conversation)
    assert await blocks_of(house, conversation) == {"human": "changed by hand", "persona": "kind"}


async def test_a_search_of_the_conversation_does_not_find_the_request_that_asked_for_it(house: House) -> None:
    conversation = await house.agent(tools=["conversation_search"])
    house.toolbox.does["conversation_search"] = builtins_of(house).run
    house.model.script(Say("A walrus, noted."))
    await house.finished(conversation, "My favourite animal is the walrus.")
    house.model.script(Say("Let me look for walrus."), Call("conversation_search", {"query": "walrus"}))
    house.model.script(Say("done"))
    await house.finished(conversation, "What did I say about the walrus?")
    [(_, text)] = await results(house, conversation)
    assert [line.split("] ")[1] for line in text.splitlines()] == [
        "assistant: A walrus, noted.",
        "user: My favourite animal is the walrus.",
    ]
