"""A cancel with rollback removes the whole turn from the context, and the history keeps all of it."""

from __future__ import annotations

import pytest

from engine.house import House
from holdfast.core.conversation.messages import Approval, ToolReturnsBody
from holdfast.core.records import Run
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessageScope
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.script import Call, Say


async def a_turn_before(house: House, conversation: str) -> list[str]:
    house.model.script(Say("before"))
    await house.finished(conversation, "earlier")
    return list(await house.conversations.context_ids(conversation))


async def returned_in(house: House, run: Run) -> list[tuple[str, str]]:
    """The results that the history of the run has: by call, how each ended."""
    stored = (
        await house.history.messages(DEFAULT_ACTOR, MessageScope(run_id=run.id), Page(limit=100, order="asc"))
    ).messages
    returns = [m.body for m in stored if isinstance(m.body, ToolReturnsBody)]
    return [(result.call_id, result.status) for body in returns for result in body.results]


async def the_next_turn_reads_only(house: House, conversation: str, before: list[str]) -> None:
    assert list(await house.conversations.context_ids(conversation)) == before
    house.model.script(Say("at your service"))
    assert (await house.finished(conversation, "next")).stop_reason == "end_turn"
    assert [message.id for message in house.model.requests[-1].messages][: len(before)] == before


async def test_while_tools_run_the_results_there_are_stay_in_the_history(house: House) -> None:
    conversation = await house.agent("look", "wait")
    before = await a_turn_before(house, conversation)
    wait = house.toolbox.block("wait")
    house.model.script(Call("look", id="c1"), Call("wait", id="c2"))
    run = await house.start(conversation)
    await wait.begun.wait()
    assert await house.engine.cancel(run, rollback=True)
    assert await returned_in(house, run) == [("c1", "success"), ("c2", "error")]
    await the_next_turn_reads_only(house, conversation, before)


async def test_while_a_human_is_asked_the_request_has_its_return_in_the_history(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    before = await a_turn_before(house, conversation)
    house.model.script(Call("pay", id="c1"))
    run = await house.finished(conversation)
    assert await house.engine.cancel(run, "ann", rollback=True)
    assert await returned_in(house, run) == [("c1", "error")]
    told = (await house.history.run(DEFAULT_ACTOR, run.id)).metadata["cancelled"]
    assert told == {"by": "ann", "reason": None, "rollback": True}
    await the_next_turn_reads_only(house, conversation, before)


@pytest.mark.parametrize("asked_of", ["asking", "answering"])
async def test_a_turn_of_two_runs_leaves_whole(house: House, asked_of: str) -> None:
    """Only the run at work can be cancelled; the one that asked is over, and cancelling it changes nothing."""
    conversation = await house.agent("pay", gated=("pay",))
    before = await a_turn_before(house, conversation)
    pay = house.toolbox.block("pay")
    house.model.script(Call("pay", id="c1"))
    asking = await house.finished(conversation)
    answering = await house.start(conversation, "", answers=(Approval("c1", True),))
    await pay.begun.wait()
    if asked_of == "asking":
        assert await house.engine.cancel(asking, rollback=True)
        assert (await house.history.run(DEFAULT_ACTOR, answering.id)).status == "running"
    assert await house.engine.cancel(answering, rollback=True)
    assert await returned_in(house, answering) == [("c1", "error")]
    await the_next_turn_reads_only(house, conversation, before)
