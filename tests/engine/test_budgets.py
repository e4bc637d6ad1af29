"""Budgets of runs, set by the request, the agent and the server."""

from __future__ import annotations

import asyncio

from engine.house import House, opened
from holdfast.core.budget import Budget, Price
from holdfast.core.conversation.messages import AssistantBody, ToolReturnsBody, plain_text
from holdfast.core.model import Usage
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessageScope
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Call, Count, Hang, Say


async def test_a_run_that_used_up_its_tokens_rests_and_the_next_message_goes_on(house: House) -> None:
    conversation = await house.agent("look")
    house.model.script(Call("look"), Count(Usage(90, 20)))
    run = await house.finished(conversation, budget={"max_tokens": 100})
    assert (run.status, run.stop_reason) == ("failed", "max_tokens_exceeded")
    assert run.metadata["budget"]["kind"] == "tokens"
    assert run.metadata["budget"]["spent"] == 110
    assert run.metadata["error"]["error_type"] == "max_tokens_exceeded"
    assert run.metadata["error"]["message"] == run.metadata["budget"]["message"]
    records = await house.records(run.id)
    assert [r["message_type"] for r in records[-3:]] == ["tool_return_message", "stop_reason", "usage_statistics"]
    assert records[-2]["budget"]["limit"] == 100
    assert len(house.toolbox.calls) == 1, "what was begun is finished"
    house.model.script(Say("on we go"))
    assert (await house.finished(conversation, "go on")).stop_reason == "end_turn"


async def test_an_agent_has_limits_of_its_own_and_the_server_the_last_word(database_url: str) -> None:
    async with opened(database_url, budget=Budget(max_tokens=50)) as house:
        conversation = await house.agent("look", budget={"max_tokens": 10_000, "max_repeats": 2})
        house.model.script(Call("look"), Count(Usage(60, 1)))
        run = await house.finished(conversation, budget={"max_tokens": 20_000})
        assert run.metadata["budget"]["limit"] == 50


async def test_a_cost_budget_holds_where_the_price_is_known(database_url: str) -> None:
    async with opened(database_url, price_of=lambda model: Price(10, 30) if model == "script" else None) as house:
        conversation = await house.agent("look")
        house.model.script(Call("look"), Count(Usage(100_000, 10_000)))
        run = await house.finished(conversation, budget={"max_cost_usd": 1.25})
        assert run.metadata["budget"]["kind"] == "cost"
        assert round(run.metadata["budget"]["spent"], 2) == 1.3
        assert "budget_notice" not in run.metadata


async def test_where_it_is_not_known_the_run_says_so(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Say("hello"), Count(Usage(10_000_000, 10)))
    run = await house.finished(conversation, budget={"max_cost_usd": 0.01})
    assert run.stop_reason == "end_turn"
    assert "not known" in run.metadata["budget_notice"]


async def test_an_agent_that_makes_no_progress_is_stopped(database_url: str) -> None:
    async with opened(database_url, budget=Budget(max_repeats=4)) as house:
        conversation = await house.agent("look")
        for _ in range(10):
            house.model.script(Call("look", {"text": "again"}))
        run = await house.finished(conversation)
        assert (run.status, run.stop_reason) == ("completed", "max_steps")
        assert run.metadata["budget"]["kind"] == "repeats"
        assert len(house.toolbox.calls) == 4


async def test_the_steps_that_were_allowed_are_named_too(house: House) -> None:
    conversation = await house.agent("look")
    house.model.script(Call("look"))
    run = await house.finished(conversation, max_steps=1)
    assert (run.stop_reason, run.metadata["budget"]["kind"]) == ("max_steps", "steps")


async def test_time_that_is_over_stops_a_reply_and_keeps_what_was_seen(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        house.model.script(Say("half a sentence"), Hang())
        run = await house.start(conversation, budget={"max_seconds": 5}, stream_tokens=True)
        records = asyncio.create_task(house.records(run.id))
        await house.model_called(1)
        await clock.advance(5)
        await house.model.closed_early.wait()
        assert (await records)[-2]["stop_reason"] == "max_steps"
        after = await house.history.run(DEFAULT_ACTOR, run.id)
        assert after.metadata["budget"]["kind"] == "seconds"
        listed = (
            await house.history.messages(
                DEFAULT_ACTOR, MessageScope(conversation_id=conversation), Page(limit=10, order="asc")
            )
        ).messages
        body = listed[-1].body
        assert isinstance(body, AssistantBody)
        assert (plain_text(body.parts), body.interrupted) == ("half a sentence", True)


async def test_time_that_is_over_kills_a_tool_and_tells_the_model(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent("wait")
        wait = house.toolbox.block("wait")
        house.model.script(Call("wait", id="c1"))
        run = await house.start(conversation, budget={"max_seconds": 5})
        records = asyncio.create_task(house.records(run.id))
        await wait.begun.wait()
        await clock.advance(5)
        await wait.ended.wait()
        assert (await records)[-2]["budget"]["kind"] == "seconds"
        listed = (
            await house.history.messages(
                DEFAULT_ACTOR, MessageScope(conversation_id=conversation), Page(limit=10, order="asc")
            )
        ).messages
        body = listed[-1].body
        assert isinstance(body, ToolReturnsBody)
        assert body.results[0].status == "error"
        assert "budget is 5 seconds" in plain_text(body.results[0].content)
        house.model.script(Say("next"))
        assert (await house.finished(conversation, "go on")).stop_reason == "end_turn"
