"""Watches every statement that the engines of this process send: its caller, its plan, and how much it reads.

SQLite counts the steps of its virtual machine, which are the same on every machine, with those of foreign keys. On
Postgres each statement is sent to EXPLAIN (ANALYZE) before it is executed, in a savepoint that is rolled back; what
counts is the rows that its scans read, those that a filter removed included.

It sits below SQLAlchemy, in subclasses of the drivers' connections and cursors, so that statements that are executed by
the driver are seen too.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from sqlalchemy import Engine, event

from holdfast.storage.sql.pipelined import LazyCursor

STEPS_PER_TICK = 50
MOST_EXPLAINED = 40  # executions of one statement on Postgres; polls repeat themselves
STORAGE = "/holdfast/storage/"
READS_OR_WRITES = re.compile(r"\s*(WITH|SELECT|UPDATE|DELETE|INSERT)\b", re.IGNORECASE)


@dataclass(slots=True)
class Sent:
    """A statement as it was sent once."""

    text: str
    caller: str
    connection: int
    work: int = 0
    plan: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.caller} ({self.work:,}): {' '.join(self.text.split())}\n    " + "\n    ".join(self.plan)


@dataclass(slots=True)
class Watch:
    sent: list[Sent] = field(default_factory=list)
    explain: bool = True
    explained: Counter[str] = field(default_factory=Counter)

    def worst(self) -> list[Sent]:
        """Of each statement the execution that read most, the worst statement first."""
        found: dict[tuple[str, str], Sent] = {}
        for one in self.sent:
            key = (one.caller, one.text)
            if key not in found or found[key].work < one.work:
                found[key] = one
        return sorted(found.values(), key=lambda one: -one.work)


_watch: Watch | None = None


@contextmanager
def watched(*, explain: bool = True) -> Iterator[Watch]:
    """Watch the connections that engines open meanwhile. Without `explain`, statements are only noted."""
    global _watch
    _watch = Watch(explain=explain)
    event.listen(Engine, "do_connect", _connect_watched)
    try:
        yield _watch
    finally:
        event.remove(Engine, "do_connect", _connect_watched)
        _watch = None


def _connect_watched(dialect: Any, _record: Any, _arguments: Any, options: dict[str, Any]) -> None:
    if dialect.name == "sqlite":
        options["factory"] = WatchedSqlite
    else:
        options["cursor_factory"] = WatchedCursor


def caller() -> str:
    """The function of `storage` that sends the statement, below the modules that all stores share."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        _, found, path = frame.f_code.co_filename.partition(STORAGE)
        if found and not path.startswith("sql/"):
            return f"{path}:{frame.f_code.co_name}"
        frame = frame.f_back
    return "?"


# ---- SQLite ---------------------------------------------------------------------------------------------------------


class WatchedSqlite(sqlite3.Connection):
    current: Sent | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._plans: dict[str, tuple[str, ...]] = {}
        self.set_progress_handler(self._tick, STEPS_PER_TICK)

    def _tick(self) -> int:
        if self.current is not None:
            self.current.work += STEPS_PER_TICK
        return 0

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or WatchedSqliteCursor)

    def execute(self, statement: str, parameters: Any = ()) -> Any:
        return self.cursor().execute(statement, parameters)

    def note(self, statement: str, parameters: Any) -> None:
        self.current = None
        if _watch is None:
            return
        sent = Sent(statement, caller(), id(self))
        if _watch.explain and READS_OR_WRITES.match(statement):
            sent.plan = self._plan(statement, parameters)
        _watch.sent.append(sent)
        self.current = sent

    def _plan(self, statement: str, parameters: Any) -> tuple[str, ...]:
        if statement not in self._plans:
            rows = sqlite3.Cursor(self).execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            self._plans[statement] = tuple(row[3] for row in rows)
        return self._plans[statement]


class WatchedSqliteCursor(sqlite3.Cursor):
    connection: WatchedSqlite

    def execute(self, statement: str, parameters: Any = ()) -> Any:
        self.connection.note(statement, parameters)
        return super().execute(statement, parameters)

    def executemany(self, statement: str, parameters: Any) -> Any:
        parameters = list(parameters)
        self.connection.note(statement, parameters[0] if parameters else ())
        return super().executemany(statement, parameters)


# ---- Postgres -------------------------------------------------------------------------------------------------------


class WatchedCursor(LazyCursor):
    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        self._note(query, params)
        return super().execute(query, params, **options)

    def executemany(self, query: Any, params_seq: Any, **options: Any) -> Any:
        params_seq = list(params_seq)
        self._note(query, params_seq[0] if params_seq else None)
        return super().executemany(query, params_seq, **options)

    def _note(self, query: Any, params: Any) -> None:
        if _watch is None or not isinstance(query, str):
            return
        sent = Sent(query, caller(), id(self.connection))
        in_transaction = not self.connection.autocommit
        again = _watch.explained[query] >= MOST_EXPLAINED
        if _watch.explain and in_transaction and not again and READS_OR_WRITES.match(query):
            _watch.explained[query] += 1
            self._explain(sent, params)
        _watch.sent.append(sent)

    def _explain(self, sent: Sent, params: Any) -> None:
        plain = psycopg.Cursor(self.connection)
        plain.execute("SAVEPOINT watched")
        try:
            plain.execute(f"EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF, FORMAT JSON) {sent.text}", params)
            found = plain.fetchone()
            assert found is not None
            lines: list[str] = []
            sent.work = _rows_read(found[0][0]["Plan"], lines, 0)
            sent.plan = tuple(lines)
        except psycopg.Error:
            pass  # the statement itself will fail in the same way
        finally:
            plain.execute("ROLLBACK TO SAVEPOINT watched")
            plain.execute("RELEASE SAVEPOINT watched")


def _rows_read(node: dict[str, Any], lines: list[str], depth: int) -> int:
    """The rows that the scans of a plan read; adds the plan's lines in short."""
    loops = node["Actual Loops"]
    removed = sum(count for name, count in node.items() if name.startswith("Rows Removed by"))
    is_scan = "Relation Name" in node or "Index Name" in node
    read = round((node["Actual Rows"] + removed) * loops)
    names = ("Node Type", "Relation Name", "Index Name", "Index Cond")
    said = " ".join(str(node[name]) for name in names if name in node)
    lines.append(f"{'  ' * depth}{said}: {read:,} rows, {removed * loops:,.0f} removed")
    parts = [_rows_read(part, lines, depth + 1) for part in node.get("Plans", ())]
    return sum(parts) + (read if is_scan else 0)
