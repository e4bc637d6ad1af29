"""The preview of the next request equals the request that is sent; its tokens are counted as exactly as possible."""

from __future__ import annotations

from dataclasses import replace

from engine.house import House, opened
from holdfast.core.conversation.messages import Draft, Message, Text, UserBody
from holdfast.core.model import ModelRequest
from holdfast.core.run_request import RunRequest
from holdfast.records.blocks import NewBlock
from holdfast.testing.script import Call, Say


def comparable(request: ModelRequest) -> ModelRequest:
    """Without what is made anew each time: the id and time of a message that is not written yet."""

    def same(message: Message) -> Message:
        first = request.messages[0]
        return replace(message, id="", created_at=first.created_at, run_id=None, step_id=None)

    return replace(request, messages=tuple(map(same, request.messages)))


async def test_the_preview_is_what_is_sent(house: House) -> None:
    conversation = await house.agent(
        "look",
        "pay",
        tool_rules=[{"type": "run_first", "tool_name": "look"}],
        memory_blocks=[NewBlock(label="human", value="Likes kelp.")],
        model_settings={"provider_type": "openai", "temperature": 0.3},
    )
    for number in range(2):
        shown = await house.maintenance.preview(
            conversation, RunRequest(messages=(Draft(UserBody((Text(f"question {number}"),))),))
        )
        before = len(house.model.requests)
        house.model.script(Call("look"))
        house.model.script(Say("seen"))
        await house.finished(conversation, f"question {number}")
        assert comparable(shown.request) == comparable(house.model.requests[before])
        assert [tool.name for tool in shown.request.tools] == ["look"], "the rules are kept"


async def test_a_preview_writes_nothing(house: House) -> None:
    conversation = await house.agent()
    await house.maintenance.preview(conversation, RunRequest(messages=(Draft(UserBody((Text("hello"),))),)))
    assert await house.kinds(conversation) == ["System"]
    assert house.model.requests == []


async def test_the_vendors_count_is_the_whole_and_the_parts_share_it(house: House) -> None:
    conversation = await house.agent("look", memory_blocks=[NewBlock(label="human", value="Likes kelp. " * 50)])
    estimated = await house.maintenance.overview(conversation)

    async def count_tokens(request: ModelRequest) -> int:
        return 7_001

    house.model.count_tokens = count_tokens  # type: ignore[attr-defined]
    seen = await house.maintenance.overview(conversation)
    assert seen.total == seen.system + seen.memory + seen.summary + seen.messages + seen.tools == 7_001
    assert abs(seen.memory / seen.total - estimated.memory / estimated.total) < 0.01
    assert estimated.total < 2_000


async def test_the_models_own_tokenizer_counts_the_parts(database_url: str) -> None:
    async with opened(database_url, count=lambda model, text: len(text.split()) if model == "script" else 0) as house:
        conversation = await house.agent(memory_blocks=[NewBlock(label="human", value="one two three four")])
        house.model.script(Say("five six"))
        await house.finished(conversation, "seven eight nine")
        seen = await house.maintenance.overview(conversation)
        assert seen.messages == 3 + 2 + 2 * 4, "the words, and four for each message"
