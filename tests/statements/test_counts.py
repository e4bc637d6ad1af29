"""How many statements, transactions and page writes a message takes: these counts do not depend on the machine.

The limits are what the code needs today. Whoever lowers a count lowers its limit here, so that it does not grow again.
Polls, heartbeats and traces are not counted: they depend on the time, and many runs share them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.conftest import MODEL, serving
from statements.watching import Sent, Watch, watched

MESSAGES = 10
QUIET = {"HOLDFAST_TRACE_RETENTION_DAYS": "0", "HOLDFAST_LEASE_SECONDS": "600"}
POLLS = {
    *("outbox.py:_any_due", "approval_store.py:_any_due", "claims.py:claim_next", "claims.py:_in_fair_order"),
    *("claims.py:free_leases", "run_store.py:_cancels_asked", "traces.py:_drop"),
    *("retention.py:_drop_events", "retention.py:_drop_keys"),
}
BEGINS = ("BEGIN", "BEGIN IMMEDIATE")
ADD = '''
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The one.
        b: The other.
    """
    return a + b
'''


@dataclass(frozen=True)
class Counts:
    """Per message: statements, transactions that read and that write, and pages that SQLite appends to its log."""

    statements: float
    reads: float
    writes: float
    pages: float

    def __le__(self, limit: Counts) -> bool:
        mine = (self.statements, self.reads, self.writes, self.pages)
        return all(
            a <= b for a, b in zip(mine, (limit.statements, limit.reads, limit.writes, limit.pages), strict=True)
        )


PLAIN = Counts(statements=14, reads=0, writes=2, pages=54)
TOOL = Counts(statements=34, reads=0, writes=4, pages=107)  # a turn with one call, hence two steps
STREAMED_PAGE = 1  # statements


class Talk:
    """A server on SQLite, an agent with a tool, and the transactions that a message takes."""

    def __init__(self, url: str, file: Path, watch: Watch) -> None:
        self._http = httpx.Client(base_url=url, timeout=60)
        self._file, self._watch = file, watch
        tool = self.ask("PUT", "/v1/tools/", {"source_code": ADD})
        agent = self.ask("POST", "/v1/agents/", {"model": MODEL, "tool_ids": [tool["id"]], "include_base_tools": False})
        self.path = f"/v1/agents/{agent['id']}/messages"

    def ask(self, method: str, path: str, body: Any) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, text: str) -> None:
        self.ask("POST", self.path, {"input": text})

    def _send_all(self, text: str) -> None:
        for _ in range(MESSAGES):
            self.send(text)

    def stream(self, body: Any) -> None:
        with self._http.stream("POST", self.path, json=body) as records:
            assert b"[DONE]" in records.read()

    def transactions_of(self, work: Callable[[], None]) -> list[list[Sent]]:
        """The transactions of `work` that are not polls."""
        first = len(self._watch.sent)
        work()
        return [one for one in _transactions(self._watch.sent[first:]) if any(map(_is_no_poll, one[1:]))]

    def counts_of(self, text: str) -> Counts:
        """The mean over some messages, after one that fills the caches."""
        self.send(text)
        with closing(sqlite3.connect(self._file, timeout=30)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        log = self._file.with_name(f"{self._file.name}-wal")
        done = self.transactions_of(lambda: self._send_all(text))
        frames = (log.stat().st_size - 32) // (4096 + 24)
        writes = sum(one[0].text == "BEGIN IMMEDIATE" for one in done)
        statements = sum(len(one) - 1 for one in done)
        return Counts(statements / MESSAGES, (len(done) - writes) / MESSAGES, writes / MESSAGES, frames / MESSAGES)


def _is_no_poll(sent: Sent) -> bool:
    return sent.caller.rpartition("/")[2] not in POLLS


def _transactions(sent: list[Sent]) -> list[list[Sent]]:
    """Statements by transaction; each begins with its BEGIN."""
    found: list[list[Sent]] = []
    open_on: dict[int, list[Sent]] = {}
    for one in sent:
        if one.text in BEGINS:
            open_on[one.connection] = [one]
            found.append(open_on[one.connection])
        elif one.connection in open_on:
            open_on[one.connection].append(one)
    return found


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    with watched(explain=False) as watch, serving(f"sqlite:///{tmp_path}/one.db", tmp_path, **QUIET) as url:
        yield Talk(url, tmp_path / "one.db", watch)


def test_a_plain_message_takes_no_more_than_before(talk: Talk) -> None:
    counts = talk.counts_of("Hello.")
    assert counts <= PLAIN, counts


def test_a_turn_with_a_tool_takes_no_more_than_before(talk: Talk) -> None:
    counts = talk.counts_of('/call add {"a": 1, "b": 2}')
    assert counts <= TOOL, counts


def test_a_streamed_page_takes_no_more_than_before(talk: Talk) -> None:
    body = {"input": "/slow 50\n/tokens 30", "streaming": True, "stream_tokens": True}
    pages = [one for one in talk.transactions_of(lambda: talk.stream(body)) if _is_page(one)]
    assert len(pages) > 1
    assert max(len(one) - 1 for one in pages) <= STREAMED_PAGE, [s.text for s in pages[-1]]


def _is_page(transaction: list[Sent]) -> bool:
    texts = " ".join(one.text for one in transaction)
    return "INSERT INTO events" in texts and "INSERT INTO steps" not in texts and "INSERT INTO runs" not in texts
