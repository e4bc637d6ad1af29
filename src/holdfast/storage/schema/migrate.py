"""Migrates a database to this version's schema; called at start and by `holdfast migrate`.

An up-to-date database is recognised by one query, without loading Alembic, so that it does not slow down a start. All
migrations run in one transaction: if one fails, the database stays as it was.

Processes with different schemas never work side by side: `refuse_beside_others`, at start, raises `OtherVersionRuns` if
a process of another version is connected, and `NewerDatabase` if a newer version has migrated the database. A migration
that only adds can be done beforehand, by `holdfast migrate`, while older processes still run. Those in `BREAKING` are
refused beside them.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0021"
# Older versions cannot work on a database after one of these: 0013 drops columns that they read; since 0015 each writer
# of an agent raises its revision; since 0016 a page of events does not update its run; since 0020 an input may be
# written before its run is claimed.
BREAKING = frozenset({"0013", "0015", "0016", "0020"})
APPLICATION_NAME = f"holdfast {HEAD}"  # of our connections to Postgres; versions before 0013 gave none
VERSION_TABLE = "schema_version"
# Its name in versions before 0019. One of these starts on any database that has this table and is newer than itself;
# without it, it takes the database for an empty one, tries to create the tables, and stops.
_OLD_VERSION_TABLE = "alembic_version"

_CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user
    AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND
"""
_OLDER_PROCESSES = text(
    f"{_CONNECTIONS} (application_name = '' OR application_name LIKE 'holdfast %' AND application_name < :needed)"
)
_OTHER_PROCESSES = text(f"{_CONNECTIONS} application_name ~ '^holdfast [0-9]+$' AND application_name <> :ours")


class VersionConflict(Exception):
    """The database, or a process that uses it, has another version; nothing was changed."""


class OlderProcessRuns(VersionConflict):
    """A breaking migration is needed, and a process of an older version uses the database."""

    def __init__(self, connections: int) -> None:
        super().__init__(
            f"the database must be migrated, which servers and workers of an older version do not survive, and they "
            f"hold {connections} connections to it. Stop them all, then start this one. Nothing was changed, and runs "
            "that they leave are taken over."
        )


class OtherVersionRuns(VersionConflict):
    def __init__(self, connections: int) -> None:
        super().__init__(
            f"servers or workers of a version with another schema hold {connections} connections to the database, and "
            "would not notice what this one writes. Stop them all, then start this one. Runs that they leave are taken "
            "over."
        )


class NewerDatabase(VersionConflict):
    def __init__(self, version: str) -> None:
        super().__init__(
            f"a newer version of Holdfast has migrated the database to {version}, and this one knows {HEAD}. Start the "
            "newer version, or restore a backup from before."
        )


def version_of(engine: Engine) -> str | None:
    """The revision of a database; None if it is empty."""
    with engine.connect() as connection:
        return _version(connection)


def _version(connection: Connection) -> str | None:
    found = inspect(connection)
    table = next((name for name in (VERSION_TABLE, _OLD_VERSION_TABLE) if found.has_table(name)), None)
    version = None if table is None else connection.execute(text(f"SELECT version_num FROM {table}")).scalar()
    return None if version is None else str(version)


def refuse_beside_others(engine: Engine) -> None:
    """Raise `VersionConflict` if the database, or a process that is connected to it, has another version."""
    with engine.connect() as connection:
        before = _version(connection)
        if before is not None and before > HEAD:
            raise NewerDatabase(before)
        if engine.dialect.name == "postgresql":
            found = connection.execute(_OTHER_PROCESSES, {"ours": APPLICATION_NAME}).scalar_one()
            if found:
                raise OtherVersionRuns(found)


def migrate(engine: Engine, to: str | None = None) -> tuple[str | None, str]:
    """Migrate the database to `HEAD`, or to an earlier revision. Returns the revision before and after."""
    before, goal = version_of(engine), to or HEAD
    if before is not None and before > HEAD:
        raise NewerDatabase(before)
    if before is not None and before >= goal:
        return before, before
    # Imported only when needed: it is slow to load.
    from alembic import command

    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(811283)"))  # several processes may start at once
            _refuse_beside_older_processes(connection, goal)
        if inspect(connection).has_table(_OLD_VERSION_TABLE):
            connection.execute(text(f"ALTER TABLE {_OLD_VERSION_TABLE} RENAME TO {VERSION_TABLE}"))
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, goal)
    return before, goal


def _refuse_beside_older_processes(connection: Connection, goal: str) -> None:
    """Raise `OlderProcessRuns` if a breaking migration is still to come and older processes use this Postgres."""
    before = _version(connection) or goal
    if not (coming := [revision for revision in BREAKING if before < revision <= goal]):
        return
    found = connection.execute(_OLDER_PROCESSES, {"needed": f"holdfast {max(coming)}"}).scalar_one()
    if found:
        raise OlderProcessRuns(found)


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(files("holdfast.storage") / "migrations"))
    return config
