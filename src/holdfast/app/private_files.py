"""Protect the server's private files (data folder, database, keys) from other users of the machine and from tools.

`app.opened` calls `close_to_others` before it creates anything, and `app.toolbox` calls `hidden_from_tools`. Modes are
set file by file rather than by a umask: zygotes would inherit a umask, and then tools that run as other users could not
enter their own scratch folders.
"""

from __future__ import annotations

import itertools
import logging
import os
import stat
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sqlalchemy.engine import make_url

import holdfast
from holdfast.settings import Settings
from holdfast.storage.encryption import KEY_FILE
from holdfast.tools.inside.confinement import SYSTEM_DIRECTORIES

log = logging.getLogger("holdfast.app")

FILE_MODE = 0o600
# When the server is root, tools run as other users and reach their packages through this folder. Mode 711 lets them
# pass, but not list it.
FOLDER_MODE = 0o711 if os.getuid() == 0 else 0o700
_BESIDE_A_DATABASE = ("", "-wal", "-shm", "-journal", ".lock")
_SECRET_FILES = ("sslkey", "passfile", "ssl_keyfile")  # parameters of Postgres and Redis URLs


class CannotStart(Exception):
    """The configuration does not allow the server to start; the text says what to change."""


def sqlite_file(settings: Settings) -> Path | None:
    url = make_url(settings.database_url)
    is_file = url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":", "file:"))
    return Path(str(url.database)).expanduser().absolute() if is_file else None


def close_to_others(settings: Settings) -> None:
    """Create the data folder and the database with private modes, and restrict those that an older version created
    with wider ones. Raises `CannotStart` if they cannot be created."""
    with _raising_cannot_start(settings.data_dir):
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    _restrict(settings.data_dir, FOLDER_MODE)
    _restrict(settings.data_dir / "processes", 0o700)
    _restrict(settings.data_dir / KEY_FILE, FILE_MODE)
    close_database_to_others(settings)


def close_database_to_others(settings: Settings) -> None:
    """The same for a SQLite file alone. Its folder may be shared, so the mode of an existing folder is not changed."""
    database = sqlite_file(settings)
    if database is None:
        return
    with _raising_cannot_start(database):
        database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # SQLite gives the files beside a database the database's own mode.
        os.close(os.open(database, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE))
    for end in _BESIDE_A_DATABASE:
        _restrict(Path(f"{database}{end}"), FILE_MODE)


@contextmanager
def _raising_cannot_start(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotStart(
            f"{path} cannot be used: {error}. Give this user the rights to read and write there, or set "
            "HOLDFAST_DATA_DIR or HOLDFAST_DATABASE to another place."
        ) from error


def _restrict(path: Path, most: int) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & ~most & 0o077:
            path.chmod(mode & (most | 0o700))
            log.warning("Other users of this machine could reach %s (mode %o); now they cannot.", path, mode)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("Other users of this machine may read %s, and its mode cannot be changed: %s", path, error)


# ---- tools ----------------------------------------------------------------------------------------------


def check_tool_folders(settings: Settings) -> None:
    """Raise `CannotStart` if a folder that tools can write to contains private files or is inside a private folder; if
    it contains code that the server runs; or if one such folder is inside another, because a tool could replace the
    inner one with a link to any place."""
    folders = settings.tool_folders or ()
    for outer, inner in itertools.permutations(folders, 2):
        if inner.resolve().is_relative_to(outer.resolve()):
            raise CannotStart(
                f"HOLDFAST_TOOL_FOLDERS names {inner}, which is {outer} or lies in it, where every tool can change "
                "files. Name only the outer one, or folders beside each other."
            )
    for folder in folders:
        for code in _code_of_the_server():
            if _overlap(folder, code):
                raise CannotStart(
                    f"HOLDFAST_TOOL_FOLDERS names {folder}, where every tool can change files, and that would include "
                    f"code that this server runs: {code}. Name another folder."
                )
        for private in _private(settings):
            if _overlap(folder, private):
                raise CannotStart(
                    f"HOLDFAST_TOOL_FOLDERS names {folder}, where every tool can read and change files, and that would "
                    f"include the server's own: {private}. Name another folder, or move these files."
                )


def _code_of_the_server() -> Iterator[Path]:
    """Where this server's own code and its libraries are."""
    if sys.prefix != sys.base_prefix:  # a virtual environment, and not all of /usr
        yield Path(sys.prefix)
    yield from map(Path, (sys.executable, sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")))
    yield Path(holdfast.__file__).parent


def hidden_from_tools(settings: Settings) -> list[Path]:
    """The paths that no tool may see, even below a folder that is visible to tools, such as /usr."""
    hidden = list(_private(settings))
    database = sqlite_file(settings)
    if database is not None and not _is_needed_by_tools(database.parent):
        hidden.append(database.parent)
    return hidden


def _private(settings: Settings) -> Iterator[Path]:
    yield settings.data_dir
    if (database := sqlite_file(settings)) is not None:
        yield from (Path(f"{database}{end}") for end in _BESIDE_A_DATABASE)
    account = settings.vendors.get("google_vertex_credentials", "")
    if account and not account.lstrip().startswith("{"):
        yield Path(account).expanduser().absolute()
    for url in filter(None, (settings.database_url, settings.redis_url)):
        parameters = parse_qs(urlsplit(url).query)
        yield from (Path(value) for name in _SECRET_FILES for value in parameters.get(name, ()))


def _is_needed_by_tools(folder: Path) -> bool:
    """Whether hiding the whole folder would also hide Python or system files, which tools need."""
    needed = (sys.prefix, sys.base_prefix, sys.executable, sysconfig.get_path("purelib"), *SYSTEM_DIRECTORIES)
    real = folder.resolve()
    return any(Path(path).resolve().is_relative_to(real) for path in needed)


def _overlap(one: Path, other: Path) -> bool:
    one, other = one.resolve(), other.resolve()
    return one.is_relative_to(other) or other.is_relative_to(one)
