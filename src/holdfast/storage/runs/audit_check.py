"""Verifies the audit log of decisions, for `holdfast audit`, by its hash chain, the ledger and a noted head hash.

Three checks; each finds what the others cannot:

- The hash chain: a row that was changed or removed breaks the chain from there on.
- The ledger of tool calls: every call that needed a decision has one, for the same tool and arguments, and its status
  follows from the decision. This finds rows that were cut off at the end or rewritten with new hashes, unless the
  ledger was changed with them.
- A head hash that was noted elsewhere: it must be at its place in the chain. Then every row up to it is unchanged,
  whatever was done to the database.

Ledger rows are deleted with their agent. Decisions stay, and are then checked by the chain alone. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, or_, select

from holdfast.core.approvals.approval_gate import digest_of
from holdfast.core.lifecycle import WAITING_CALLS
from holdfast.storage.runs.audit_log import GENESIS, hash_of
from holdfast.storage.schema.record_tables import decisions, ledger

MAX_LISTED_MISMATCHES = 20
ROWS_PER_FETCH = 1000

_COMPARED = ("kind", "tool_name", "tool_digest", "arguments_digest")

# The possible kinds of the newest decision on a call, by the call's status. `_ASKED` is for calls that a person was
# asked about; `_NOT_ASKED` for calls that a policy or an allowance let pass, or that the server cancelled after an
# error of its own.
_APPROVED = frozenset({"approved", "edited"})
_ASKED: Mapping[str, frozenset[str]] = {
    "allowed": _APPROVED,
    "started": _APPROVED,
    "settled": _APPROVED | {"answered"},
    "denied": frozenset({"denied", "void"}),
    "cancelled": _APPROVED | {"cancelled"},
}
_NOT_ASKED: Mapping[str, frozenset[str]] = {
    "allowed": frozenset({"allowed"}),
    "started": frozenset({"allowed"}),
    "settled": frozenset({"allowed"}),
    "denied": frozenset({"refused"}),
    "cancelled": frozenset({"allowed", "cancelled"}),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """What an operator noted earlier: the newest hash, and the number of decisions at that time."""

    head: str | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A call in the ledger that the audit log does not agree with."""

    step_id: str
    call_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The result. `checked` rows are intact, and `head` is the hash of the last of them; `broken_at` is the number of
    the first row that does not fit, if any. `expected` says whether the noted head was found. `mismatched` counts the
    calls that disagree with the log, of which `mismatches` lists the first."""

    checked: int
    head: str = GENESIS
    broken_at: int | None = None
    expected: bool = True
    mismatched: int = 0
    mismatches: tuple[Mismatch, ...] = ()

    @property
    def holds(self) -> bool:
        return self.broken_at is None and self.expected and not self.mismatched


def verify(connection: Connection, expected: Expected | None = None) -> Verified:
    expected = expected or Expected()
    previous, checked, seen = GENESIS, 0, _is_expected(expected, GENESIS, 0)
    for row in _rows(connection, select(decisions).order_by(decisions.c.number)):
        if row["previous_hash"] != previous or hash_of(dict(row)) != row["hash"]:
            return Verified(checked, previous, row["number"], seen)
        previous, checked = row["hash"], checked + 1
        seen = seen or _is_expected(expected, previous, checked)
    mismatched = 0
    listed: list[Mismatch] = []
    for mismatch in _mismatches(connection):
        mismatched += 1
        if len(listed) < MAX_LISTED_MISMATCHES:
            listed.append(mismatch)
    return Verified(checked, previous, None, seen, mismatched, tuple(listed))


def _is_expected(expected: Expected, head: str, count: int) -> bool:
    return expected.head in (None, head) and expected.count in (None, count)


def _rows(connection: Connection, query: Any) -> Iterator[Any]:
    """Stream the rows instead of loading all of them into memory."""
    return iter(connection.execute(query, execution_options={"yield_per": ROWS_PER_FETCH}).mappings())


def _mismatches(connection: Connection) -> Iterator[Mismatch]:
    of_the_call = (decisions.c.step_id == ledger.c.step_id, decisions.c.call_id == ledger.c.call_id)
    newest = select(func.max(decisions.c.number)).where(*of_the_call).correlate(ledger).scalar_subquery()
    made = decisions.alias("made")
    query = (
        select(ledger, *(made.c[name].label(f"made_{name}") for name in ("number", *_COMPARED)))
        .select_from(ledger.outerjoin(made, made.c.number == newest))
        .where(ledger.c.status.not_in(sorted(WAITING_CALLS)))
        .where(or_(ledger.c.approval_id.is_not(None), ledger.c.status == "denied", made.c.number.is_not(None)))
    )
    for row in _rows(connection, query):
        if (problem := _problem(row)) is not None:
            yield Mismatch(row["step_id"], row["call_id"], problem)


def _problem(row: Mapping[str, Any]) -> str | None:
    """What is wrong with the newest decision on this call, or None."""
    if row["made_number"] is None:
        return f"the call of {row['name']} is {row['status']}, and its decision is missing"
    where = f"decision {row['made_number']} on the call of {row['name']}"
    run = row["arguments"] if row["edited"] is None else row["edited"]
    if row["made_arguments_digest"] != digest_of(run):
        return f"{where} is about other arguments"
    if (row["made_tool_name"], row["made_tool_digest"]) != (row["name"], row["digest"]):
        return f"{where} is about another tool"
    possible = _NOT_ASKED if row["approval_id"] is None else _ASKED
    if row["made_kind"] not in possible[row["status"]]:
        return f"{where} says {row['made_kind']}, and the call is {row['status']}"
    return None
