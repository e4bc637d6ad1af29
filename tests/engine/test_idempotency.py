"""The same request sent twice is one run, and a key that was used for another request is refused."""

from __future__ import annotations

import asyncio

import pytest

from engine.house import House
from holdfast.core.conversation.messages import Approval
from holdfast.core.errors import Conflict, PendingApproval
from holdfast.testing.script import Call, Hang, Say


async def test_a_request_sent_again_after_its_end_gives_the_same_run_and_records(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Say("once"))
    first = await house.finished(conversation, keys=("otid:a", "key:k"), body_digest="same")
    again = await house.start(conversation, keys=("otid:a",), body_digest="same")
    assert again.id == first.id
    assert again.status == "completed"
    assert await house.kinds(conversation) == ["System", "User", "Assistant"]


async def test_a_request_sent_again_while_it_runs_joins_it_instead_of_being_refused(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Hang())
    runs = await asyncio.gather(*(house.start(conversation, keys=("otid:a",), body_digest="same") for _ in range(8)))
    assert len({run.id for run in runs}) == 1
    await house.engine.cancel(runs[0])


async def test_a_name_with_another_body_is_refused_and_says_which_run_has_it(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Say("once"))
    first = await house.finished(conversation, keys=("otid:a",), body_digest="one")
    with pytest.raises(Conflict, match=f"a already names another request, which became run {first.id}"):
        await house.start(conversation, keys=("otid:b", "otid:a"), body_digest="two")
    assert await house.kinds(conversation) == ["System", "User", "Assistant"]


async def test_names_belong_to_their_conversation(house: House) -> None:
    one, two = await house.agent(), await house.agent()
    runs = []
    for conversation in (one, two):
        house.model.script(Say("hi"))
        runs.append(await house.finished(conversation, keys=("otid:a",), body_digest="same"))
    assert runs[0].id != runs[1].id


async def test_a_refused_request_leaves_its_name_free(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    waiting = await house.finished(conversation)
    with pytest.raises(PendingApproval):
        await house.start(conversation, keys=("otid:a",), body_digest="same")
    await house.engine.cancel(waiting)
    house.model.script(Say("now"))
    assert (await house.finished(conversation, keys=("otid:a",), body_digest="same")).status == "completed"


async def test_an_approval_answered_twice_runs_the_tool_once(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    await house.finished(conversation)
    house.model.script(Say("paid"))
    answer = {"answers": (Approval("c1", True),), "keys": ("otid:yes",), "body_digest": "same"}
    first = await house.finished(conversation, "", **answer)
    again = await house.start(conversation, "", **answer)
    assert again.id == first.id
    assert [job.name for job in house.toolbox.calls] == ["pay"]
