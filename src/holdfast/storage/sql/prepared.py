"""Statements that are compiled once and executed by the driver: `Prepared`, used for the statements of the hot path.

SQLAlchemy makes an execution context and a result object for every execution, which costs several times what SQLite
needs for the statement itself. A `Prepared` statement is an ordinary SQLAlchemy statement, compiled once for each
database and set of parameters. When it is executed, the driver gets the compiled text, and only the conversions of the
column types are applied.

    _HOLDER = Prepared(select(runs.c.id).where(runs.c.conversation_id == bindparam("conversation_id")))
    connection.execute(_HOLDER, {"conversation_id": conversation_id}).scalar()

Use it for constants of a module. A list of values (`IN`) cannot be a parameter, because it changes the text.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import ClauseElement, Connection, Dialect, Executable
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

from holdfast.core.errors import Broken

_Convert: TypeAlias = Callable[[Any], Any]
_Tuples: TypeAlias = list[tuple[Any, ...]]


class Prepared(Executable):
    """A statement that is compiled once. Its results have the methods of SQLAlchemy's that stores use (`Rows`)."""

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._compiled: dict[tuple[str, tuple[str, ...]], _Compiled] = {}

    def _execute_on_connection(self, connection: Connection, distilled_params: Any, execution_options: Any) -> Any:
        """Called by `Connection.execute`, with the parameters as a sequence of mappings."""
        given: Sequence[Mapping[str, Any]] = distilled_params or ({},)
        dialect = connection.dialect
        key = (dialect.name, tuple(given[0]))
        if (compiled := self._compiled.get(key)) is None:
            compiled = self._compiled[key] = _Compiled.of(self._statement, dialect, key[1])
        is_many = len(given) > 1
        values = [compiled.parameters(one) for one in given] if is_many else compiled.parameters(given[0])
        for listener in connection.dispatch.before_cursor_execute:  # tests count statements, and explain them
            listener(connection, None, compiled.text, values, None, is_many)
        cursor = connection.connection.cursor()
        with driver_errors(connection):
            (cursor.executemany if is_many else cursor.execute)(compiled.text, values)
            return Rows(connection, cursor, compiled)


@contextmanager
def driver_errors(connection: Connection) -> Iterator[None]:
    """Raise the driver's errors as SQLAlchemy does, so that errors are alike for all statements."""
    dialect = connection.dialect
    try:
        yield
    except dialect.loaded_dbapi.Error as error:
        is_lost = dialect.is_disconnect(error, connection.connection.dbapi_connection, None)
        if is_lost:
            connection.invalidate(error)
        raise DBAPIError.instance(
            None, None, error, dialect.loaded_dbapi.Error, connection_invalidated=is_lost, dialect=dialect
        ) from error


@dataclass(slots=True)
class _Compiled:
    """`binds` are the parameters in the order of the text: the name that the caller gives a value by, or None for a
    constant of the statement; the conversion of its type; and the constant."""

    text: str
    names: tuple[str, ...] | None  # of the parameters, if the driver takes them by name
    binds: tuple[tuple[str | None, _Convert | None, Any], ...]
    columns: tuple[str, ...]
    types: tuple[Any, ...]
    row: type[Any]
    dialect: Dialect
    converts: list[tuple[int, _Convert]] | None = None  # of columns; known when the driver has described them once

    @classmethod
    def of(cls, statement: ClauseElement, dialect: Dialect, given: tuple[str, ...]) -> _Compiled:
        compiled = statement.compile(dialect=dialect, column_keys=list(given))
        assert isinstance(compiled, SQLCompiler)
        if compiled.post_compile_params or compiled.insert_prefetch or compiled.update_prefetch:
            raise Broken(f"SQLAlchemy must complete this statement at each execution; do not prepare it: {compiled}")
        names = tuple(compiled.positiontup or compiled.bind_names.values())
        columns = tuple(entry.keyname for entry in compiled._result_columns)
        return cls(
            text=str(compiled),
            names=None if compiled.positional else names,
            binds=tuple(_bind(compiled, name, is_given=name in given) for name in names),
            columns=columns,
            types=tuple(entry.type for entry in compiled._result_columns),
            row=namedtuple("Row", columns, rename=True),
            dialect=dialect,
        )

    def parameters(self, given: Mapping[str, Any]) -> Any:
        values = [
            constant if name is None else given[name] if convert is None else convert(given[name])
            for name, convert, constant in self.binds
        ]
        return values if self.names is None else dict(zip(self.names, values, strict=True))

    def converted(self, rows: _Tuples, description: Any) -> _Tuples:
        """The rows with the values that the column types stand for."""
        if self.converts is None:
            codes = (column[1] for column in description)
            found = [
                kind._cached_result_processor(self.dialect, code) for kind, code in zip(self.types, codes, strict=True)
            ]
            self.converts = [(place, convert) for place, convert in enumerate(found) if convert is not None]
        return [_converted(row, self.converts) for row in rows] if self.converts else rows


def _bind(compiled: SQLCompiler, name: str, *, is_given: bool) -> tuple[str | None, _Convert | None, Any]:
    convert: Any = compiled._bind_processors.get(name)
    if is_given:
        return name, convert, None
    constant = compiled.params[name]
    return None, None, convert(constant) if convert else constant


def _converted(row: tuple[Any, ...], converts: list[tuple[int, _Convert]]) -> tuple[Any, ...]:
    values = list(row)
    for place, convert in converts:
        values[place] = convert(values[place])
    return tuple(values)


class Rows:
    """The rows of a `Prepared` statement: named tuples, or dictionaries by `mappings`."""

    __slots__ = ("_compiled", "_connection", "_cursor", "_fetched")

    def __init__(self, connection: Connection, cursor: Any, compiled: _Compiled) -> None:
        self._connection = connection
        self._cursor = cursor
        self._compiled = compiled
        self._fetched: _Tuples | None = None
        # SQLite finishes an `UPDATE … RETURNING` only when its last row was read. On Postgres what is not looked at is
        # not waited for (`storage.sql.pipelined`).
        if connection.dialect.name == "sqlite" and compiled.columns:
            self._fetched = self._fetch()

    @property
    def _rows(self) -> _Tuples:
        if self._fetched is None:
            self._fetched = self._fetch()
        return self._fetched

    def _fetch(self) -> _Tuples:
        with driver_errors(self._connection):
            return self._compiled.converted(self._cursor.fetchall(), self._cursor.description)

    @property
    def rowcount(self) -> int:
        with driver_errors(self._connection):
            count: int = self._cursor.rowcount
            return count

    def keys(self) -> tuple[str, ...]:
        return self._compiled.columns

    def all(self) -> list[Any]:
        return [self._compiled.row._make(row) for row in self._rows]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.all())

    def first(self) -> Any:
        return self._compiled.row._make(self._rows[0]) if self._rows else None

    def one(self) -> Any:
        ((*row,),) = self._rows
        return self._compiled.row._make(row)

    def mappings(self) -> Dictionaries:
        columns = self._compiled.columns
        return Dictionaries(dict(zip(columns, row, strict=True)) for row in self._rows)

    def scalars(self) -> list[Any]:
        return [row[0] for row in self._rows]

    def scalar(self) -> Any:
        return self._rows[0][0] if self._rows else None

    def scalar_one(self) -> Any:
        ((value, *_),) = self._rows
        return value


class Dictionaries(list[dict[str, Any]]):
    """Rows as dictionaries by column."""

    def all(self) -> list[dict[str, Any]]:
        return self

    def first(self) -> dict[str, Any] | None:
        return self[0] if self else None

    def one(self) -> dict[str, Any]:
        (row,) = self
        return row
