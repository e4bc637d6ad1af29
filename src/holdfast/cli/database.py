"""`holdfast migrate` and `holdfast backup`: the database itself."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from holdfast.settings import Settings
from holdfast.storage.database import make_engine
from holdfast.storage.migrate import migrate


def migrate_database(settings: Settings) -> int:
    engine = make_engine(settings.database_url)
    try:
        before, now = migrate(engine)
    except SQLAlchemyError as error:
        print(f"holdfast: the database could not be migrated, and was left as it was: {error}", file=sys.stderr)
        return 1
    finally:
        engine.dispose()
    print(f"The database was at {before or 'nothing'} and is at {now}.")
    return 0


def back_up_database(settings: Settings, file: Path) -> int:
    """A consistent copy of a SQLite database, made while servers go on. It is whole when its name appears."""
    url = make_url(settings.database_url)
    if url.get_backend_name() != "sqlite":
        return _refused("Postgres is backed up with pg_dump; see docs/operations.md.")
    if file.exists():
        return _refused(f"{file} exists already. Name a new file.")
    if not url.database or not Path(url.database).exists():
        return _refused(f"there is no database at {url.database}.")
    growing = file.with_name(f"{file.name}.part")
    try:
        with closing(sqlite3.connect(url.database)) as live, closing(sqlite3.connect(growing)) as copy:
            live.backup(copy)
        growing.rename(file)
    except (sqlite3.Error, OSError) as error:
        growing.unlink(missing_ok=True)
        return _refused(f"the copy could not be made: {error}")
    print(f"{url.database} was copied to {file}.")
    return 0


def _refused(why: str) -> int:
    print(f"holdfast: {why}", file=sys.stderr)
    return 1
