"""`holdfast audit` against a person who can write to the database: rows removed, rewritten, all tables emptied.

The attacker knows how the chain is made and gives every row that it rewrites the hash that fits.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, delete, select, update

from engine.house import House, opened
from holdfast.core.conversation.messages import Approval, ToolResult
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.runs.audit_log import hash_of
from holdfast.storage.schema.record_tables import decisions, ledger
from holdfast.storage.sql.database import make_engine
from holdfast.testing.script import Call, Say
from test_cli import holdfast

POLICIES = [
    {"tool": "pay", "when": [{"argument": "text", "op": "eq", "value": "evil"}], "then": "deny"},
    {"tool": "pay", "when": [{"argument": "text", "op": "eq", "value": "small"}], "then": "allow"},
]


async def decide_some(house: House) -> None:
    """One decision of each kind that leaves a call decided."""
    conversation = await house.agent("pay", gated=("pay",), approval_policies=POLICIES)
    for call_id, text, answer in (
        ("c1", "big", Approval("c1", True)),
        ("c2", "evil", None),
        ("c3", "small", None),
        ("c4", "big", Approval("c4", True, None, '{"text": "less"}')),
        ("c5", "big", ToolResult("c5", "success", "by hand")),
        ("c6", "big", Approval("c6", False, "no")),
    ):
        house.model.script(Call("pay", {"text": text}, id=call_id))
        house.model.script(Say("ok"))
        await house.finished(conversation)
        if answer is not None:
            await house.finished(conversation, "", answers=(answer,))
    house.model.script(Call("pay", {"text": "big"}, id="c7"))
    await house.finished(conversation)
    await house.engine.cancel((await house.history.open_runs(DEFAULT_ACTOR))[0])


@pytest.fixture
def decided(database_url: str) -> str:
    """A database with seven decisions, and nothing that uses it."""

    async def fill() -> None:
        async with opened(database_url) as house:
            await decide_some(house)

    asyncio.run(fill())
    return database_url


def audit(url: str, *more: str) -> subprocess.CompletedProcess[str]:
    return holdfast("audit", "--database", url, *more)


def head_of(told: str) -> tuple[str, str]:
    found = re.search(r"count (\d+), head ([0-9a-f]{64})", told)
    assert found is not None, told
    return found[1], found[2]


def numbers(connection: Connection) -> list[int]:
    return list(connection.execute(select(decisions.c.number).order_by(decisions.c.number)).scalars())


def rewrite_from(connection: Connection, first: int, **values: Any) -> None:
    """Change a row, and give it and all after it the hashes that fit."""
    connection.execute(update(decisions).where(decisions.c.number == first).values(**values))
    rows = connection.execute(select(decisions).order_by(decisions.c.number)).mappings().all()
    previous = "0" * 64
    for row in rows:
        made = {**row, "previous_hash": previous}
        previous = hash_of(made)
        changed = {"previous_hash": made["previous_hash"], "hash": previous}
        connection.execute(update(decisions).where(decisions.c.number == row["number"]).values(**changed))


def remove_newest(connection: Connection) -> None:
    connection.execute(delete(decisions).where(decisions.c.number == numbers(connection)[-1]))


def remove_all(connection: Connection) -> None:
    connection.execute(delete(decisions))


def of_call(connection: Connection, call_id: str) -> int:
    return int(connection.execute(select(decisions.c.number).where(decisions.c.call_id == call_id)).scalar_one())


def rewrite_a_denial(connection: Connection) -> None:
    rewrite_from(connection, of_call(connection, "c6"), kind="approved")


def rewrite_a_denial_of_a_policy(connection: Connection) -> None:
    rewrite_from(connection, of_call(connection, "c2"), kind="allowed")


def rewrite_the_arguments(connection: Connection) -> None:
    rewrite_from(connection, of_call(connection, "c4"), arguments_digest="0" * 64)


def rewrite_the_tool(connection: Connection) -> None:
    rewrite_from(connection, of_call(connection, "c1"), tool_digest="0" * 64)


def rewrite_the_ledger(connection: Connection) -> None:
    connection.execute(update(ledger).where(ledger.c.call_id == "c1").values(arguments='{"text": "huge"}'))


@pytest.mark.parametrize(
    "attack",
    [
        remove_newest,
        remove_all,
        rewrite_a_denial,
        rewrite_a_denial_of_a_policy,
        rewrite_the_arguments,
        rewrite_the_tool,
        rewrite_the_ledger,
    ],
)
def test_the_audit_finds_what_does_not_agree_with_the_ledger(
    decided: str, attack: Callable[[Connection], None]
) -> None:
    before = audit(decided)
    assert before.returncode == 0, before.stdout
    assert "The audit log holds: 7 decisions" in before.stdout
    engine = make_engine(decided)
    with engine.begin() as connection:
        attack(connection)
    engine.dispose()
    told = audit(decided)
    assert told.returncode == 1, told.stdout
    assert "BROKEN: the ledger has" in told.stdout
    assert "The audit log holds" not in told.stdout


def test_a_head_that_was_written_down_finds_what_the_ledger_cannot(decided: str) -> None:
    """Who decided is in the log alone; and an attacker may remove the ledger's rows too."""
    count, head = head_of(audit(decided).stdout)
    engine = make_engine(decided)
    for attack in ("another name", "rows of both"):
        with engine.begin() as connection:
            if attack == "another name":
                rewrite_from(connection, of_call(connection, "c1"), decided_by="somebody else")
            else:
                connection.execute(delete(decisions).where(decisions.c.call_id == "c7"))
                connection.execute(delete(ledger).where(ledger.c.call_id == "c7"))
        assert audit(decided).returncode == 0
        for more in (("--expect", head), ("--expect", head, "--expect-count", count)):
            told = audit(decided, *more)
            assert told.returncode == 1
            assert "since it was written down" in told.stdout
    assert audit(decided, "--expect-count", count).returncode == 1
    engine.dispose()


async def grow(url: str) -> None:
    async with opened(url) as house:
        conversation = await house.agent("pay", gated=("pay",))
        house.model.script(Call("pay", id="c8"))
        await house.finished(conversation)
        house.model.script(Say("ok"))
        await house.finished(conversation, "", answers=(Approval("c8", True),))


def test_a_log_that_has_grown_still_holds_the_head_that_was_written_down(decided: str) -> None:
    count, head = head_of(audit(decided).stdout)
    asyncio.run(grow(decided))
    for more in ((), ("--expect", head.upper()), ("--expect", head, "--expect-count", count), ("--expect-count", "8")):
        told = audit(decided, *more)
        assert told.returncode == 0, told.stdout
    assert audit(decided, "--expect", head, "--expect-count", "6").returncode == 1
    assert head_of(told.stdout)[0] == "8"


def test_an_agent_that_is_deleted_takes_its_calls_along_and_leaves_its_decisions(decided: str) -> None:
    engine = make_engine(decided)
    with engine.begin() as connection:
        connection.execute(delete(ledger))
    engine.dispose()
    told = audit(decided)
    assert told.returncode == 0
    assert head_of(told.stdout)[0] == "7"
