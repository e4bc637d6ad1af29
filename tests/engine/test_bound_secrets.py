"""An approval is bound to the secrets that the call would get. If they change, it is void."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from engine.house import House
from engine.test_approvals import inbox_store, last_returns, waiting
from holdfast.core.conversation.messages import Approval
from holdfast.ports.paging import Page
from holdfast.ports.stores.approval_store import ApprovalFilter
from holdfast.records.agent_patch import AgentPatch
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.schema.record_tables import decisions, ledger
from holdfast.testing.script import Call, Say

SECRETS = {"TOKEN": "token-of-alice", "PLACE": "Ulm"}


async def asked(house: House, **given: Any) -> tuple[str, str]:
    """A conversation in which a call waits, and its agent."""
    conversation = await house.agent("pay", gated=("pay",), secrets=SECRETS, **given)
    house.model.script(Call("pay", {"text": "100"}, id="c1"))
    await house.finished(conversation)
    return conversation, (await waiting(house))[0].agent_id


@pytest.mark.parametrize(
    "after",
    [{**SECRETS, "TOKEN": "token-of-mallory"}, {**SECRETS, "NEW": "one"}, {"TOKEN": SECRETS["TOKEN"]}, {}],
    ids=["changed", "added", "removed", "emptied"],
)
async def test_an_approval_is_void_when_the_secrets_have_changed(house: House, after: dict[str, str]) -> None:
    conversation, agent_id = await asked(house)
    await house.agents.change(DEFAULT_ACTOR, agent_id, AgentPatch(secrets=after))
    house.model.script(Say("oh"))
    await house.finished(conversation, "", answers=(Approval("c1", True),))
    assert house.toolbox.calls == []
    told = (await last_returns(house, conversation))["c1"]
    assert "the agent's secrets were changed after approval of pay was asked for" in told
    [decided] = await inbox_store(house).listing(DEFAULT_ACTOR, ApprovalFilter(waiting=False), Page())
    assert decided.decision is not None
    assert decided.decision.kind == "void"


async def test_the_same_secrets_sent_again_leave_the_approval_as_it_is(house: House) -> None:
    conversation, agent_id = await asked(house)
    reordered = {"PLACE": "Ulm", "TOKEN": "token-of-alice"}
    await house.agents.change(DEFAULT_ACTOR, agent_id, AgentPatch(tool_exec_environment_variables=reordered))
    await house.agents.change(DEFAULT_ACTOR, agent_id, AgentPatch(name="another"))
    house.model.script(Say("paid"))
    await house.finished(conversation, "", answers=(Approval("c1", True),))
    assert [job.call_id for job in house.toolbox.calls] == ["c1"]


async def test_nothing_in_the_rows_lets_one_check_a_guess_of_a_secret(house: House) -> None:
    conversation, _ = await asked(house)
    house.model.script(Say("paid"))
    await house.finished(conversation, "", answers=(Approval("c1", True),))
    house.model.script(Call("pay", {"text": "100"}, id="c2"))
    other = await house.agent("pay", gated=("pay",), secrets=SECRETS)
    await house.finished(other)
    with house.database.engine.connect() as connection:
        digests = [row.digest for row in connection.execute(ledger.select())]
        audited = [row.tool_digest for row in connection.execute(decisions.select())]
    assert audited == digests[:1]
    bound = {digest.partition(".")[2] for digest in digests}
    assert len(bound) == 2, "two agents with the same secrets have different digests"
    assert hashlib.sha256(b'{"PLACE":"Ulm","TOKEN":"token-of-alice"}').hexdigest() not in bound


async def test_a_call_that_was_asked_about_before_secrets_were_bound_still_runs(house: House) -> None:
    conversation, agent_id = await asked(house)
    with house.database.engine.begin() as connection:
        tool = connection.execute(ledger.select()).one().digest.partition(".")[0]
        connection.execute(ledger.update().values(digest=tool))
    await house.agents.change(DEFAULT_ACTOR, agent_id, AgentPatch(secrets={}))
    house.model.script(Say("paid"))
    await house.finished(conversation, "", answers=(Approval("c1", True),))
    assert [job.call_id for job in house.toolbox.calls] == ["c1"]
