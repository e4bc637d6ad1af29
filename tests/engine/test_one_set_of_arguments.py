"""On both databases, over random rules, policies and decisions: the arguments of a call in its message, in the request,
in the inbox, in the ledger, under the digests, in the audit log and in the tool's hands are one and the same.

`tests/core` has the same over many more cases, without rows.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from engine.house import House, opened
from engine.test_approvals import inbox, last_returns, waiting
from holdfast.core.approvals.approval_gate import digest_of
from holdfast.core.conversation.messages import Approval, ApprovalRequestBody, AssistantBody, ToolResult
from holdfast.core.errors import Invalid
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.schema.record_tables import decisions, ledger
from holdfast.testing.script import Call, Say

CASES = 25


def rules_of(random: Random) -> tuple[dict[str, Any], ...]:
    filled = {"text": random.choice(("a", "b", "c"))}
    child: dict[str, Any] = {"type": "constrain_child_tools", "tool_name": "first", "children": ["pay"]}
    rules: list[dict[str, Any]] = [
        {"type": "requires_approval", "tool_name": "pay"},
        {"type": "run_first", "tool_name": "pay", "args": filled},
        child | {"child_arg_nodes": [{"name": "pay", "args": filled}]},
    ]
    return tuple(rule for rule in rules if random.random() < 0.6)


def policies_of(random: Random) -> list[dict[str, Any]]:
    made = []
    for then in random.sample(("allow", "ask", "deny"), random.randint(0, 2)):
        value = random.choice(("a", "b", "c"))
        made.append({"tool": "pay", "when": [{"argument": "text", "op": "eq", "value": value}], "then": then})
    return made


def denies(policies: list[dict[str, Any]], text: str) -> bool:
    """Whether the first policy that applies to this text denies the call."""
    applies = (policy["then"] for policy in policies if policy["when"][0]["value"] == text)
    return next(applies, None) == "deny"


def expected_of(rules: tuple[dict[str, Any], ...], after_first: bool, written: str) -> dict[str, Any]:
    kind = "constrain_child_tools" if after_first else "run_first"
    for rule in rules:
        if rule["type"] == kind:
            return dict(rule["child_arg_nodes"][0]["args"] if after_first else rule["args"])
    return {"text": written}


async def in_messages(house: House, conversation: str, call_id: str) -> list[dict[str, Any]]:
    context = (await house.deps.store.snapshot(conversation)).context or ()
    bodies = [message.body for message in context if isinstance(message.body, AssistantBody | ApprovalRequestBody)]
    return [json.loads(one.arguments) for body in bodies for one in body.calls if one.id == call_id]


def rows_of(house: House, call_id: str) -> tuple[Any, list[Any]]:
    """The call's row in the ledger, and its rows in the audit log."""
    with house.database.engine.connect() as connection:
        row = connection.execute(ledger.select().where(ledger.c.call_id == call_id)).one()
        audit = connection.execute(decisions.select().where(decisions.c.call_id == call_id)).all()
    return row, list(audit)


def a_decision(random: Random, call_id: str) -> Approval | ToolResult:
    match random.choice(("approve", "edit", "edit", "deny", "answer")):
        case "approve":
            return Approval(call_id, True)
        case "edit":
            return Approval(call_id, True, None, json.dumps({"text": random.choice(("a", "b", "c", "mine"))}))
        case "deny":
            return Approval(call_id, False, "no")
        case _:
            return ToolResult(call_id, "success", "by hand")


async def play(house: House, random: Random, call_id: str) -> None:
    rules, written = rules_of(random), random.choice(("a", "b", "c"))
    after_first = not any(rule["type"] == "run_first" for rule in rules) and random.random() < 0.5
    expected = expected_of(rules, after_first, written)
    policies = policies_of(random)
    conversation = await house.agent("first", "pay", tool_rules=rules, approval_policies=policies)
    if after_first:
        house.model.script(Call("first", {"text": "x"}, id=f"{call_id}_first"))
    house.model.script(Call("pay", {"text": written}, id=call_id))
    house.model.script(Say("done"))
    await house.finished(conversation, stream_tokens=random.random() < 0.5)
    assert await in_messages(house, conversation, call_id) == [expected]
    for asked in await waiting(house):
        assert json.loads(asked.call.arguments) == expected
        given = a_decision(random, call_id)
        seen = digest_of(asked.call.arguments)
        if isinstance(given, Approval) and given.arguments is not None:
            expected = json.loads(given.arguments)
            if denies(policies, expected["text"]):
                with pytest.raises(Invalid, match="forbids"):
                    await inbox(house).decide(DEFAULT_ACTOR, asked, given, seen_digest=seen, remember=None)
                given, expected = Approval(call_id, True), json.loads(asked.call.arguments)
        run = await inbox(house).decide(DEFAULT_ACTOR, asked, given, seen_digest=seen, remember=None)
        await house.records(run.id)
    row, audit = rows_of(house, call_id)
    assert json.loads(row.edited or row.arguments) == expected
    assert {one.arguments_digest for one in audit} <= {digest_of(json.dumps(expected))}
    ran = [dict(job.arguments) for job in house.toolbox.calls if job.call_id == call_id]
    assert ran == ([expected] if row.executed else [])
    if ran and row.edited is not None:
        assert f"This call ran with: {row.edited}" in (await last_returns(house, conversation))[call_id]


@pytest.mark.parametrize("seed", range(2))
async def test_what_is_shown_stored_digested_and_run_is_one_and_the_same(database_url: str, seed: int) -> None:
    random = Random(seed)
    async with opened(database_url) as house:
        for number in range(CASES):
            await play(house, random, f"c{number}")
