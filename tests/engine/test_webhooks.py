"""Webhooks: stored with the end of a run, claimed by one process, retried, given up, visible on the run."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from engine.house import House, opened
from holdfast.core.conversation.messages import Approval
from holdfast.core.records import Run
from holdfast.engine.chores.webhook_signing import webhook_headers
from holdfast.engine.chores.webhooks import GIVE_UP_AFTER, WebhookDependencies, Webhooks, pause_seconds
from holdfast.ports.outbound import AddressRefused, OutboundRequest, OutboundResponse, Unreachable
from holdfast.storage.chores.outbox import SqlOutbox
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.schema.record_tables import outbox
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Call, Fail, Say

URL = "https://example.com/hook"


class Receiver:
    """Stands at the other end: answers as told, then with 200, and remembers what came."""

    def __init__(self, *answers: int | Exception) -> None:
        self._answers = list(answers)
        self.got: list[OutboundRequest] = []

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        self.got.append(request)
        answer = self._answers.pop(0) if self._answers else 200
        if isinstance(answer, Exception):
            raise answer
        return OutboundResponse(answer, {}, b"", request.url)

    async def close(self) -> None:
        """Nothing is held."""

    def bodies(self) -> list[dict[str, Any]]:
        return [orjson.loads(request.body) for request in self.got]


def sender(house: House, receiver: Receiver, secret: str | None = None) -> Webhooks:
    store, clock = house.deps.store, house.deps.clock
    return Webhooks(WebhookDependencies(SqlOutbox(house.database), store, receiver, clock, secret, chance=lambda: 0.5))


async def rows(house: House) -> Sequence[Any]:
    return await house.database.read(lambda c: c.execute(select(outbox)).all())


async def shown(house: House, run: Run) -> Run:
    return await house.history.run(DEFAULT_ACTOR, run.id)


async def test_a_run_that_ends_is_told_with_its_whole_result(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Say("all done"))
    run = await house.finished(conversation, callback_url=URL, background=True, run_type="send_message_async")
    receiver = Receiver()
    assert await sender(house, receiver).deliver_due() == 1
    (body,) = receiver.bodies()
    assert (body["run_id"], body["status"]) == (run.id, "completed")
    assert body["completed_at"].count(":") == 2
    assert body["metadata"]["run_type"] == "send_message_async"
    result = body["metadata"]["result"]
    assert [m["content"] for m in result["messages"]] == ["all done"]
    assert result["stop_reason"]["stop_reason"] == "end_turn"
    after = await shown(house, run)
    assert (after.callback_status_code, after.callback_error) == (200, None)
    assert after.callback_sent_at is not None
    assert await sender(house, receiver).deliver_due() == 0


async def test_a_run_without_a_callback_sends_no_webhook(house: House) -> None:
    house.model.script(Say("hi"))
    await house.finished(await house.agent())
    assert await rows(house) == []


async def test_a_failed_run_is_told_with_its_error(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Fail.of("llm_authentication"))
    await house.finished(conversation, callback_url=URL)
    receiver = Receiver()
    await sender(house, receiver).deliver_due()
    (body,) = receiver.bodies()
    assert body["status"] == "failed"
    assert body["metadata"]["error"]["error_type"] == "llm_authentication"


async def test_a_run_that_waits_for_a_human_is_told_and_again_when_it_is_cancelled(house: House) -> None:
    conversation = await house.agent("pay", gated=("pay",))
    house.model.script(Call("pay", id="c1"))
    run = await house.finished(conversation, callback_url=URL)
    await house.engine.cancel(run)
    receiver = Receiver()
    await sender(house, receiver).deliver_due()
    told = sorted(receiver.bodies(), key=lambda body: str(body["status"]))
    assert [body["status"] for body in told] == ["cancelled", "completed"]
    stops = [body["metadata"]["result"]["stop_reason"]["stop_reason"] for body in told]
    assert stops == ["cancelled", "requires_approval"]
    asked = [m["message_type"] for m in told[1]["metadata"]["result"]["messages"]]
    assert asked == ["approval_request_message"]


async def test_a_call_that_waits_is_announced_and_so_is_its_decision(database_url: str) -> None:
    async with opened(database_url, approvals_webhook=URL) as house:
        conversation = await house.agent("pay", gated=("pay",))
        house.model.script(Call("pay", {"text": "5"}, id="c1"))
        run = await house.finished(conversation)
        house.model.script(Say("paid"))
        await house.finished(conversation, "", answers=(Approval("c1", True),))
        receiver = Receiver()
        assert await sender(house, receiver).deliver_due() == 2
        told = {body["type"]: body["approval"] for body in receiver.bodies()}
        assert set(told) == {"approval.requested", "approval.settled"}
        assert told["approval.requested"]["tool_call"]["arguments"] == '{"text":"5"}'
        assert told["approval.requested"]["id"] == told["approval.settled"]["id"]
        assert (await shown(house, run)).callback_sent_at is None


async def test_what_fails_is_tried_again_later_with_the_same_bytes(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        house.model.script(Say("hi"))
        run = await house.finished(conversation, callback_url=URL)
        receiver = Receiver(500, Unreachable("nobody there"))
        webhooks = sender(house, receiver)
        await webhooks.deliver_due()
        assert (await shown(house, run)).callback_error == "The receiver answered 500."
        assert await webhooks.deliver_due() == 0
        await clock.advance(pause_seconds(1, 0.5) + 1)
        await webhooks.deliver_due()
        assert (await shown(house, run)).callback_error == "nobody there"
        await clock.advance(pause_seconds(2, 0.5) + 1)
        await webhooks.deliver_due()
        after = await shown(house, run)
        assert (after.callback_status_code, after.callback_error) == (200, None)
        assert len({request.body for request in receiver.got}) == 1
        assert len({request.headers["webhook-id"] for request in receiver.got}) == 1
        assert len({request.headers["webhook-timestamp"] for request in receiver.got}) == 3


async def test_after_72_hours_it_is_given_up(database_url: str) -> None:
    clock = FakeClock()
    async with opened(database_url, clock=clock) as house:
        conversation = await house.agent()
        house.model.script(Say("hi"))
        run = await house.finished(conversation, callback_url=URL)
        receiver = Receiver(*[503] * 1000)
        webhooks = sender(house, receiver)
        began = clock.now()
        while (await rows(house))[0].status == "pending":
            await webhooks.deliver_due()
            await clock.advance(600)
        assert clock.now() - began < GIVE_UP_AFTER + timedelta(hours=1)
        assert clock.now() - began > GIVE_UP_AFTER - timedelta(hours=8)
        assert 15 < len(receiver.got) < 40
        assert (await rows(house))[0].status == "dead"
        assert "Given up after" in str((await shown(house, run)).callback_error)


@pytest.mark.parametrize("answer", [410, AddressRefused("127.0.0.1 is not a public address.")])
async def test_what_cannot_get_better_is_given_up_at_once(house: House, answer: int | Exception) -> None:
    conversation = await house.agent()
    house.model.script(Say("hi"))
    await house.finished(conversation, callback_url=URL)
    await sender(house, Receiver(answer)).deliver_due()
    assert (await rows(house))[0].status == "dead"


async def test_what_one_sender_has_claimed_another_leaves_alone_until_the_claim_runs_out(house: House) -> None:
    conversation = await house.agent()
    house.model.script(Say("hi"))
    await house.finished(conversation, callback_url=URL)
    box, now = SqlOutbox(house.database), house.deps.clock.now()
    until = now + timedelta(seconds=60)
    (first,) = await box.claim(now, until, 10)
    assert await box.claim(now, until, 10) in ([], ())
    later = until + timedelta(seconds=1)
    (second,) = await box.claim(later, later + timedelta(seconds=60), 10)
    assert (first.attempt, second.attempt) == (1, 2)
    outcome = sender(house, Receiver())._outcome(first, 200, None, final=False)
    await box.settle(first, outcome)
    assert (await rows(house))[0].status == "pending"
    await box.settle(second, outcome)
    assert (await rows(house))[0].status == "sent"


async def test_a_slow_receiver_delays_no_other_delivery(house: House) -> None:
    slow, told, go_on = "https://slow.example/hook", asyncio.Event(), asyncio.Event()

    class Slow(Receiver):
        async def send(self, request: OutboundRequest) -> OutboundResponse:
            if request.url == slow:
                await go_on.wait()
            answer = await super().send(request)
            told.set()
            return answer

    receiver = Slow()
    webhooks = sender(house, receiver)
    webhooks.open()
    replies = [Say("one"), Say("two")]
    for url, reply in zip((slow, URL), replies, strict=True):
        house.model.script(reply)
        await house.finished(await house.agent(), callback_url=url, background=True)
    async with asyncio.timeout(5):
        await told.wait()
    assert [request.url for request in receiver.got] == [URL]
    await webhooks.close()
    assert [row.status for row in await rows(house) if row.url == slow] == ["pending"]


def test_pauses_double_from_seconds_to_hours_and_are_spread() -> None:
    steady = [pause_seconds(attempt, 0.5) for attempt in range(1, 40)]
    assert steady[:3] == [5, 10, 20]
    assert steady == sorted(steady)
    assert steady[-1] == 6 * 3600
    assert pause_seconds(1, 0) == 3.75
    assert pause_seconds(1, 0.999) == pytest.approx(6.25, abs=0.01)


def test_the_signature_is_that_of_standard_webhooks() -> None:
    key = b"a shared secret of ours"
    secret = f"whsec_{base64.b64encode(key).decode()}"
    now = FakeClock().now()
    headers = webhook_headers("msg_1", now, b'{"a":1}', secret)
    signed = f"msg_1.{int(now.timestamp())}.".encode() + b'{"a":1}'
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert "webhook-signature" not in webhook_headers("msg_1", now, b"", None)
