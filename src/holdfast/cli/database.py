"""`holdfast migrate` and `holdfast backup`: migrate the database schema, copy the SQLite file."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy.engine import make_url

from holdfast.app.private_files import FILE_MODE, CannotStart, close_database_to_others
from holdfast.cli.failures import DATABASE_ERRORS, database_error_text, fail
from holdfast.settings import Settings
from holdfast.storage.schema.migrate import VersionConflict, migrate
from holdfast.storage.sql.database import make_engine


def migrate_database(settings: Settings) -> int:
    try:
        close_database_to_others(settings)
    except CannotStart as error:
        return fail(str(error))
    engine = make_engine(settings.database_url)
    try:
        before, now = migrate(engine)
    except VersionConflict as error:
        return fail(str(error))
    except DATABASE_ERRORS as error:
        return fail(f"nothing was migrated: {database_error_text(settings, error)}")
    finally:
        engine.dispose()
    print(f"The database was at {before or 'nothing'} and is at {now}.")
    return 0


def back_up_database(settings: Settings, file: Path) -> int:
    """Make a consistent copy of a SQLite database while servers run. The file gets its name once it is complete."""
    url = make_url(settings.database_url)
    if url.get_backend_name() != "sqlite":
        return fail("Postgres is backed up with pg_dump; see docs/operations.md.")
    if file.exists():
        return fail(f"{file} exists already. Name a new file.")
    if not url.database or not Path(url.database).exists():
        return fail(f"there is no database at {url.database}.")
    partial = file.with_name(f"{file.name}.part")
    try:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE))
        with closing(sqlite3.connect(url.database)) as live, closing(sqlite3.connect(partial)) as copy:
            live.backup(copy)
        partial.rename(file)
    except (sqlite3.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        return fail(f"the copy could not be made: {error}")
    print(f"{url.database} was copied to {file}.")
    return 0
