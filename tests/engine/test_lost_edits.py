"""A call whose arguments a person edited, and whose server crashed while it ran."""

from __future__ import annotations

from engine.house import opened
from engine.test_approvals import last_returns, say, waiting
from holdfast.core.approvals.approval_gate import digest_of
from holdfast.core.conversation.messages import Approval
from holdfast.storage.schema.record_tables import decisions
from holdfast.testing.script import Call, Say
from holdfast.testing.waiting import until_found


async def test_a_call_that_was_edited_and_lost_is_asked_about_and_run_again_with_its_edit(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent("pay", gated=("pay",))
        house.model.script(Call("pay", {"text": "100"}, id="c1"))
        await house.finished(conversation)
        pay = house.toolbox.block("pay")
        (asked,) = await waiting(house)
        await say(house, asked, Approval("c1", True, None, '{"text":"10"}'))
        await pay.begun.wait()
    async with opened(database_url, owner="after a restart") as house:
        again = await until_found(lambda: waiting(house), "the lost call")
        assert again[0].call.arguments == '{"text":"10"}'
        house.model.script(Say("paid"))
        run = await say(house, again[0], Approval("c1", True))
        await house.records(run.id)
        assert [dict(job.arguments) for job in house.toolbox.calls] == [{"text": "10"}]
        assert 'This call ran with: {"text":"10"}' in (await last_returns(house, conversation))["c1"]
        with house.database.engine.connect() as connection:
            audited = {row.arguments_digest for row in connection.execute(decisions.select())}
        assert audited == {digest_of('{"text":"10"}')}
