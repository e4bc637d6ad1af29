"""All ways to answer an approval, on all routes, once and twice, before and after `kill -9`: one effect, as decided.

{approve, deny, edit, answer} x {single, partial, whole batch} x {sync, step stream, token stream}
x {before, after a restart} x {sent once, sent twice}, on SQLite and Postgres. The tool really runs, in its own process,
and appends a line to a file; after each cell the next message is accepted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from letta_client import APIStatusError, Letta

from holdfast.testing.server import ServerProcess

WAYS = ("approve", "deny", "edit", "answer")
SIZES = ("single", "partial", "batch")
ROUTES = ("sync", "steps", "tokens")
SOURCE = '''
def note(path: str, line: str) -> str:
    """Write a line into a file, once per call.

    Args:
        path: The file.
        line: What to write.
    """
    with open(path, "a") as file:
        file.write(line + "\\n")
    return "wrote " + line
'''


@dataclass
class Cell:
    way: str
    size: str
    route: str
    after_restart: bool
    twice: bool
    agent_id: str = ""
    path: Path = Path()

    @property
    def calls(self) -> list[str]:
        return ["one"] if self.size == "single" else ["one", "two"]

    def __str__(self) -> str:
        when = "after" if self.after_restart else "before"
        return f"{self.way} {self.size} {self.route} {when} restart {'twice' if self.twice else 'once'}"


def cells() -> Iterator[Cell]:
    for way, size, route, after, twice in itertools.product(WAYS, SIZES, ROUTES, (False, True), (False, True)):
        yield Cell(way, size, route, after, twice)


def ask(client: Letta, cell: Cell, tool_id: str, folder: Path, number: int) -> None:
    """An agent that waits for a person to approve one or two calls."""
    cell.path = folder / str(number)
    cell.agent_id = client.agents.create(
        model="demo/rehearsal", tool_ids=[tool_id], include_base_tools=False, parallel_tool_calls=True
    ).id
    asked = "\n".join(f'/call note {{"path": "{cell.path}", "line": "{line}"}}' for line in cell.calls)
    response = client.agents.messages.create(cell.agent_id, messages=[{"role": "user", "content": asked}])
    assert response.stop_reason.stop_reason == "requires_approval", cell


def element(cell: Cell, call: Any) -> dict[str, Any]:
    match cell.way:
        case "approve":
            return {"type": "approval", "tool_call_id": call["tool_call_id"], "approve": True}
        case "deny":
            return {"type": "approval", "tool_call_id": call["tool_call_id"], "approve": False, "reason": "no"}
        case "edit":
            edited = {"path": str(cell.path), "line": "edited"}
            return {"type": "approval", "tool_call_id": call["tool_call_id"], "approve": True, "arguments": edited}
        case _:
            given = {"tool_return": "by hand", "status": "success"}
            return {"type": "tool", "tool_call_id": call["tool_call_id"], **given}


def send(client: Letta, cell: Cell, messages: list[Any]) -> str:
    """Send the answer by the route of this cell of the matrix; return the stop reason."""
    if cell.route == "sync":
        return client.agents.messages.create(cell.agent_id, messages=messages).stop_reason.stop_reason
    chunks = client.agents.messages.create(
        cell.agent_id, messages=messages, streaming=True, stream_tokens=cell.route == "tokens"
    )
    return next(chunk.stop_reason for chunk in list(chunks) if chunk.message_type == "stop_reason")


def answer(client: Letta, cell: Cell) -> None:
    pending = client.agents.retrieve(cell.agent_id, include=["agent.pending_approval"]).pending_approval
    assert pending is not None, cell
    calls = [call.to_dict() for call in pending.tool_calls]  # type: ignore[union-attr]
    batches = [[call] for call in calls] if cell.size == "partial" else [calls]
    for batch in batches:
        approvals = [element(cell, call) for call in batch]
        message = {"type": "approval", "approvals": approvals, "partial": cell.size == "partial"}
        expected = "requires_approval" if cell.size == "partial" and batch is not batches[-1] else "end_turn"
        assert send(client, cell, [message]) == expected, cell
        if cell.twice:
            send_again(client, cell, message)


def send_again(client: Letta, cell: Cell, message: dict[str, Any]) -> None:
    """Send the same answer again: it may be rejected or only make the agent continue, but no tool runs."""
    try:
        assert send(client, cell, [message]) == "end_turn", cell
    except APIStatusError as error:
        told = str(error.body)
        assert cell.size == "partial", cell
        assert "Already decided" in told or "No tool call is currently awaiting approval" in told, cell


def check(client: Letta, cell: Cell) -> None:
    lines = cell.path.read_text().splitlines() if cell.path.exists() else []
    expected = {"approve": cell.calls, "edit": ["edited"] * len(cell.calls)}.get(cell.way, [])
    assert sorted(lines) == sorted(expected), cell
    assert client.agents.retrieve(cell.agent_id, include=["agent.pending_approval"]).pending_approval is None, cell
    follow_up = client.agents.messages.create(cell.agent_id, messages=[{"role": "user", "content": "/say thanks"}])
    assert follow_up.stop_reason.stop_reason == "end_turn", cell


@pytest.mark.timeout(300)
def test_every_answer_by_every_route_takes_effect_exactly_once(database_url: str, tmp_path: Path) -> None:
    everything = list(cells())
    changed = tmp_path / "changed"
    changed.mkdir()
    changed.chmod(0o777)  # a tool runs as another user, and may write to this folder only
    with ServerProcess(database_url, HOLDFAST_TOOL_FOLDERS=str(changed)) as server:
        client = Letta(base_url=server.url, max_retries=0)
        tool = client.tools.upsert(source_code=SOURCE, default_requires_approval=True)
        for number, cell in enumerate(everything):
            ask(client, cell, tool.id, changed, number)
        for after_restart in (False, True):
            if after_restart:
                server.kill()
                server.start()
            for cell in everything:
                if cell.after_restart is after_restart:
                    answer(client, cell)
                    check(client, cell)
