"""No SQL statement scans a whole table that grows: SQLite explains the plan of every statement of a typical day.

SQLite uses a partial index only if the statement repeats its condition to the letter, so a statement that looks right
may scan everything. With few rows that would not be noticed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, event

from api.conftest import MODEL, serving

GROWING = {
    *("runs", "run_keys", "run_tools", "messages", "context", "steps", "events", "traces", "ledger", "outbox"),
    *("announcements", "lineage", "conversations", "agents", "blocks", "passages"),
}
PAY = '''
def pay(to: str) -> str:
    """Pay somebody.

    Args:
        to: Whom.
    """
    return "paid " + to
'''


@pytest.fixture
def sent() -> Iterator[dict[str, Any]]:
    """Collect every statement that is sent meanwhile, with the parameters of its first execution."""
    statements: dict[str, Any] = {}

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        statements.setdefault(statement, parameters[0] if many else parameters)

    event.listen(Engine, "before_cursor_execute", note)
    yield statements
    event.remove(Engine, "before_cursor_execute", note)


def a_day(url: str) -> None:
    """A typical day of use: messages, approvals, queued runs, cancels, listings, deletions."""
    http = httpx.Client(base_url=url, timeout=30)

    def ask(method: str, path: str, body: Any = None) -> Any:
        answer = http.request(method, path, json=body)
        assert answer.status_code < 300, (path, answer.text)
        return answer.json() if answer.content and "json" in answer.headers["content-type"] else None

    tool = ask("PUT", "/v1/tools/", {"source_code": PAY, "default_requires_approval": True})
    given = {"model": MODEL, "tool_ids": [tool["id"]], "memory_blocks": [{"label": "human", "value": "Ann"}]}
    agent = f"/v1/agents/{ask('POST', '/v1/agents/', {'name': 'Teller', **given})['id']}"
    ask("POST", f"{agent}/messages", {"input": "Hello."})
    asked = ask("POST", f"{agent}/messages", {"input": '/call pay {"to": "Bob"}'})
    call_id = asked["messages"][-1]["tool_call"]["tool_call_id"]
    ask("GET", "/v1/approvals")
    ask("POST", f"{agent}/messages/async", {"input": "And then?", "when_busy": "queue"})
    yes = {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": call_id, "approve": True}]}
    ask("POST", f"{agent}/messages", {"messages": [yes]})
    streamed = {"input": "/slow 100\n/tokens 50", "streaming": True, "stream_tokens": True, "when_busy": "interrupt"}
    with http.stream("POST", f"{agent}/messages", json={**streamed, "background": True}) as records:
        next(records.iter_lines())
    ask("POST", f"{agent}/messages/cancel", {"rollback": True})
    ask("POST", f"{agent}/messages", {"input": '/call conversation_search {"query": "hello"}'})
    run = ask("GET", "/v1/runs/")[0]
    ask("POST", f"/v1/runs/{run['id']}/stream", {"starting_after": 1})
    conversation = ask("POST", f"/v1/conversations/?agent_id={agent.rpartition('/')[2]}", {})
    ask("POST", f"/v1/conversations/{conversation['id']}/messages", {"input": "Elsewhere.", "streaming": False})
    for path in (
        "/v1/runs/?active=true",
        f"/v1/runs/{run['id']}/messages",
        f"/v1/runs/{run['id']}/steps",
        f"/v1/runs/{run['id']}/usage",
        "/v1/steps/",
        f"{agent}/messages",
        f"{agent}/context",
        f"/v1/conversations/{conversation['id']}/messages",
    ):
        ask("GET", path)
    ask("POST", "/v1/messages/search", {"query": "hello"})
    ask("PATCH", f"{agent}/reset-messages", {})
    ask("DELETE", f"/v1/conversations/{conversation['id']}")
    ask("DELETE", f"/v1/runs/{run['id']}")
    ask("DELETE", agent)


def test_no_statement_of_a_day_of_use_reads_a_whole_table(tmp_path: Path, sent: dict[str, Any]) -> None:
    with serving(f"sqlite:///{tmp_path}/one.db", tmp_path):
        pass  # runs the migrations, whose statements do not count
    sent.clear()
    with serving(f"sqlite:///{tmp_path}/one.db", tmp_path) as url:
        a_day(url)
    assert len(sent) > 100
    with sqlite3.connect(tmp_path / "one.db") as database:
        plans = {
            statement: [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
            for statement, values in sent.items()
            if re.match(r"\s*(WITH|SELECT|UPDATE|DELETE|INSERT)", statement)
        }
    whole = {statement: plan for statement, plan in plans.items() if any(_reads_all(line) for line in plan)}
    assert whole == {}, "\n\n".join(f"{statement}\n  {plan}" for statement, plan in whole.items())


def _reads_all(line: str) -> bool:
    found = re.fullmatch(r"SCAN (\w+)", line)
    return found is not None and found[1] in GROWING
