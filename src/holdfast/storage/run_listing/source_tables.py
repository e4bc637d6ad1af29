"""The two tables that runs are found in: their own and, by a tool they used, `run_tools`.

The second holds all that a run is listed by once more, under the same names, so that whatever filters a listing can be
asked of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, String, Table, TextClause, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from holdfast.storage.schema import run_tables
from holdfast.storage.schema.record_tables import run_tools, runs

Column = ColumnElement[Any]
Condition = ColumnElement[bool]


class _Unsought(FunctionElement[Any]):
    """A column that Postgres must not seek in an index, because the lane does not: it believes that filters know
    nothing of each other. SQLite is told its index, and has the column as it is."""

    inherit_cache = True

    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self.type = column.type


@compiles(_Unsought)
def _as_it_is(unsought: _Unsought, compiler: SQLCompiler, **how: Any) -> str:
    return compiler.process(unsought.clauses, **how)


@compiles(_Unsought, "postgresql")
def _worked_out(unsought: _Unsought, compiler: SQLCompiler, **how: Any) -> str:
    nothing = "|| ''" if isinstance(unsought.type, String) else "+ 0"
    return f"({compiler.process(unsought.clauses, **how)} {nothing})"


class Source:
    """A table that runs are found in: its columns, by the names they have in `runs`."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.columns: Mapping[str, Column] = {in_runs(column.name): column for column in table.c}
        self._unsought = {name: _Unsought(column) for name, column in self.columns.items()}

    def column(self, name: str, *, sought: bool) -> Column:
        return self.columns[name] if sought else self._unsought[name]

    @property
    def took_time(self) -> TextClause:
        """In the very words of the partial indexes."""
        return text(f"{self.table.name}.{run_tables.TOOK_TIME}")


def in_runs(column: str) -> str:
    return "id" if column == "run_id" else column


RUNS, USES = Source(runs), Source(run_tools)
