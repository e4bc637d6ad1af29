"""Error messages for a data folder or a database that cannot be used: one sentence with what to do, no traceback."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from holdfast.core.errors import StorageDown
from holdfast.settings import Settings

DAMAGED = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
NO_ACCESS = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_IOERR")
DATABASE_ERRORS = (SQLAlchemyError, StorageDown, ImportError)


def fail(message: str, code: int = 1) -> int:
    """Print why the command ends, and return its exit code."""
    print(f"holdfast: {message}", file=sys.stderr)
    return code


def database_error_text(settings: Settings, error: Exception) -> str:
    url = make_url(settings.database_url)
    shown = url.render_as_string(hide_password=True) if url.get_backend_name() != "sqlite" else url.database
    cause = getattr(error, "orig", None) or getattr(error.__cause__, "orig", None) or error
    name = getattr(cause, "sqlite_errorname", "") or ""
    if name.startswith(DAMAGED):
        return (
            f"{shown} is damaged, or no SQLite database ({cause}). Restore a backup in its place, or name another file "
            "with HOLDFAST_DATABASE or HOLDFAST_DATA_DIR."
        )
    if name.startswith(NO_ACCESS):
        return (
            f"{shown} cannot be opened or written ({cause}). Give this user the right to write the file and its "
            "folder, or name another with HOLDFAST_DATABASE or HOLDFAST_DATA_DIR."
        )
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return f"the database {shown} cannot be used: {lines[0]}. `holdfast doctor` says more."


def file_error_text(error: OSError) -> str:
    return (
        f"{error.filename} cannot be used: {error.strerror}. Give this user the right to write there, or name another "
        "folder with HOLDFAST_DATA_DIR (or a database with HOLDFAST_DATABASE)."
    )


def folder_problem(folder: Path) -> str | None:
    """Why a process could not write into this folder, which may not exist yet; None if it could."""
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except OSError as error:
        return file_error_text(error)
    if not existing.is_dir():
        return file_error_text(NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(existing)))
    if not os.access(existing, os.W_OK | os.X_OK):
        return file_error_text(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(existing)))
    return None
