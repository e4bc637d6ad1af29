"""Runs plain functions in database transactions on threads: `Database.read` and `Database.write`, used by all stores.

The functions are synchronous, so SQL code has no awaits in it and the event loop never waits for a disk. On SQLite
there is one writer thread. It commits all writes that are queued when it becomes free together (group commit), each in
its own savepoint, so that concurrent checkpoints share one fsync. On Postgres each write uses a pooled connection. A
function that raises is rolled back.
"""

from __future__ import annotations

import asyncio
import queue
import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import orjson
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    DatabaseError,
    DataError,
    DisconnectionError,
    IntegrityError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.pool import NullPool, QueuePool

from holdfast.core.errors import Conflict, Invalid, NotFound, StorageDown, UniqueConflict
from holdfast.storage.schema.migrate import APPLICATION_NAME
from holdfast.storage.sql.conflicts import violated_constraint, violates_foreign_key, violates_unique
from holdfast.storage.sql.pipelined import READ_WRITE, SNAPSHOT, LazyCursor, transaction
from holdfast.storage.sql.prepared import driver_errors

P = ParamSpec("P")
T = TypeVar("T")

MAX_BATCH = 64
READERS = 4
POSTGRES_CONNECTIONS = 16
SQLITE_SETTINGS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-16000", "temp_store=MEMORY")
SQLITE_STATEMENTS = 512  # that a connection keeps parsed


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


def make_engine(url: str, connections: int = POSTGRES_CONNECTIONS) -> Engine:
    """An engine for a `sqlite:///path` or `postgresql://…` URL, with our settings."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed)
    engine = create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        json_serializer=_dumps,
        json_deserializer=orjson.loads,
        connect_args={"application_name": APPLICATION_NAME, "cursor_factory": LazyCursor},
    )
    event.listen(engine, "checkout", _replace_if_closed)
    return engine


def _replace_if_closed(connection: Any, _record: Any, _proxy: Any) -> None:
    """Let the pool open a new connection if Postgres has closed this one, as after a restart.

    Postgres sends nothing on an idle connection until it closes it, so bytes to read mean that it is closed. Asking the
    kernel costs a microsecond. `pool_pre_ping` sends a statement before each transaction: half of all transactions."""
    idle = select.poll()
    idle.register(connection.fileno(), select.POLLIN)
    if idle.poll(0):
        raise DisconnectionError("Postgres has closed this connection.")


def _sqlite_engine(url: URL) -> Engine:
    if url.database:
        Path(url.database).expanduser().parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        url,
        poolclass=NullPool,
        json_serializer=_dumps,
        json_deserializer=orjson.loads,
        connect_args={
            "check_same_thread": False,
            "timeout": 30,
            "isolation_level": None,
            "cached_statements": SQLITE_STATEMENTS,
        },
    )

    @event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:
        for pragma in SQLITE_SETTINGS:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        readonly = connection.get_execution_options().get("readonly", False)
        with driver_errors(connection):
            _driver(connection).execute("BEGIN" if readonly else "BEGIN IMMEDIATE")

    return engine


def _driver(connection: Connection) -> Any:
    """The driver's own connection. It executes what begins and ends transactions, without a result object for each."""
    return connection.connection.dbapi_connection


@contextmanager
def _savepoint(connection: Connection) -> Iterator[None]:
    """Undo what is done within if it raises, unless SQLite has rolled back the whole transaction by itself."""
    driver = _driver(connection)
    with driver_errors(connection):
        driver.execute("SAVEPOINT job")
    try:
        yield
    except BaseException:
        if driver.in_transaction:
            driver.execute("ROLLBACK TO job")
            driver.execute("RELEASE job")
        raise
    with driver_errors(connection):
        driver.execute("RELEASE job")


@dataclass(slots=True)
class _Job:
    work: Callable[[Connection], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


def _resolve(done: list[tuple[_Job, Any, BaseException | None]]) -> None:
    for job, result, error in done:
        if job.future.cancelled():
            continue
        if error is not None:
            job.future.set_exception(error)
        else:
            job.future.set_result(result)


class _Writer:
    """The single thread that writes to SQLite, with group commit."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[Connection], Any]) -> asyncio.Future[Any]:
        """Queue a job. The thread starts with the first one: by then the database has been opened and migrated."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="holdfast-writer", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        job = _Job(work, loop.create_future(), loop)
        self._jobs.put(job)
        return job.future

    def close(self) -> None:
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        with self._engine.connect() as connection:
            while (batch := self._next_batch()) is not None:
                done = self._commit(connection, batch)
                batch[0].loop.call_soon_threadsafe(_resolve, done)

    def _next_batch(self) -> list[_Job] | None:
        job = self._jobs.get()
        if job is None:
            return None
        batch = [job]
        while len(batch) < MAX_BATCH and not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)
                break
            batch.append(job)
        return batch

    def _commit(self, connection: Connection, batch: list[_Job]) -> list[tuple[_Job, Any, BaseException | None]]:
        """Commit the batch in one transaction. If the commit itself fails, every job of the batch fails."""
        try:
            with connection.begin():
                if len(batch) == 1:
                    return [(batch[0], batch[0].work(connection), None)]
                return [self._in_savepoint(connection, job) for job in batch]
        except BaseException as error:
            return [(job, None, error) for job in batch]

    @staticmethod
    def _in_savepoint(connection: Connection, job: _Job) -> tuple[_Job, Any, BaseException | None]:
        """Run one job of a batch. A job that fails is rolled back alone, unless SQLite has rolled back the whole
        transaction, as it may on a full disk: then the jobs before it are undone, and those after it must not run."""
        try:
            with _savepoint(connection):
                return job, job.work(connection), None
        except Exception as error:
            if not _driver(connection).in_transaction:
                raise
            return job, None, error


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Turn database exceptions into errors of `core.errors`, so that no other package has to know SQLAlchemy."""
    try:
        yield
    except IntegrityError as error:
        if violates_foreign_key(error):
            raise NotFound("A record that this belongs to was deleted meanwhile.") from error
        text = f"This conflicts with what is stored: {error.orig}"
        if violates_unique(error):
            raise UniqueConflict(violated_constraint(error), text) from error
        raise Conflict(text) from error
    except DataError as error:
        raise Invalid(f"The database cannot store this value: {error.orig}") from error
    except (OperationalError, InterfaceError) as error:
        raise StorageDown(f"The database does not answer: {error.orig}") from error
    except DatabaseError as error:
        if str(getattr(error.orig, "sqlite_errorname", "")).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise StorageDown(f"The database is damaged; restore a backup: {error.orig}") from error
        raise


def _shielded(job: asyncio.Future[T]) -> asyncio.Future[T]:
    """Let a write finish although its caller is cancelled. Its exception then counts as retrieved and is not logged."""
    job.add_done_callback(lambda done: done.cancelled() or done.exception())
    return asyncio.shield(job)


class Database:
    def __init__(self, url: str, connections: int = POSTGRES_CONNECTIONS) -> None:
        self.engine = make_engine(url, connections)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._writer = _Writer(self.engine) if self.is_sqlite else None
        threads = READERS if self.is_sqlite else connections
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="holdfast-db")
        self._local = threading.local()
        if not self.is_sqlite:
            snapshot_options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            self._snapshots = self.engine.execution_options(**snapshot_options)
            self._autocommitting = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._read_connections: list[Connection] = []
        self._pending_writes: set[asyncio.Future[Any]] = set()  # Postgres only

    async def read(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work`, which must only read, in a transaction that sees one consistent snapshot of the database."""
        loop = asyncio.get_running_loop()
        with _translated_errors():
            return await loop.run_in_executor(self._threads, lambda: self._read(lambda c: work(c, *args, **kwargs)))

    async def read_together(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """As `read`, for work that reads few rows by several statements. On Postgres they are sent in a pipeline, in
        which rows cannot be fetched bit by bit (`yield_per`)."""
        loop = asyncio.get_running_loop()
        with _translated_errors():
            return await loop.run_in_executor(
                self._threads, lambda: self._read(lambda c: work(c, *args, **kwargs), together=True)
            )

    async def write(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in one transaction; it is durable when this returns.

        Cancelling the caller does not cancel the write: once submitted, it is written.
        """
        with _translated_errors():
            if self._writer is not None:
                written: T = await _shielded(self._writer.submit(lambda c: work(c, *args, **kwargs)))
                return written
            loop = asyncio.get_running_loop()
            job = loop.run_in_executor(self._threads, lambda: self._write(lambda c: work(c, *args, **kwargs)))
            self._pending_writes.add(job)
            job.add_done_callback(self._pending_writes.discard)
            return await _shielded(job)

    async def settled(self) -> None:
        """Wait until all writes that were submitted so far are finished, also those whose caller was cancelled.

        On SQLite there is nothing to wait for: its one writer works in order, so any later write comes after them."""
        if self._pending_writes:
            await asyncio.wait(set(self._pending_writes))

    def _read(self, work: Callable[[Connection], T], *, together: bool = False) -> T:
        if not self.is_sqlite and together:
            with self._autocommitting.connect() as snapshot, transaction(snapshot, SNAPSHOT):
                return work(snapshot)
        if not self.is_sqlite:
            with self._snapshots.begin() as snapshot:
                return work(snapshot)
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self.engine.connect().execution_options(readonly=True)
            self._local.connection = connection
            self._read_connections.append(connection)
        with connection.begin():
            return work(connection)

    def _write(self, work: Callable[[Connection], T]) -> T:
        with self._autocommitting.connect() as connection, transaction(connection, READ_WRITE):
            return work(connection)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._threads.shutdown(wait=True)
        for connection in self._read_connections:
            connection.close()
        self.engine.dispose()
