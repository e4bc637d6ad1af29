"""Migrates a database to this version's schema; called at start and by `holdfast migrate`.

An up-to-date database is recognised by one query, without loading Alembic, so that it does not slow down a start. All
migrations run in one transaction: if one fails, the database stays as it was.

Most migrations only add, so a process of the previous version keeps working beside the new one. Those in `BREAKING` do
not: they are refused while a process of an older version is connected (`OlderProcessRuns`). A process that finds a
newer database leaves it unchanged.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0019"
# Older versions cannot work on a database after one of these: 0013 drops columns that they read; since 0015 each writer
# of an agent raises its revision; since 0016 a page of events does not update its run.
BREAKING = frozenset({"0013", "0015", "0016"})
APPLICATION_NAME = f"holdfast {HEAD}"  # of our connections to Postgres; versions before 0013 gave none

_OLDER_PROCESSES = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user "
    "AND backend_type = 'client backend' AND pid <> pg_backend_pid() "
    "AND (application_name = '' OR application_name LIKE 'holdfast %' AND application_name < :needed)"
)


class OlderProcessRuns(Exception):
    """A breaking migration is needed, and a process of an older version uses the database; nothing was changed."""

    def __init__(self, connections: int) -> None:
        super().__init__(
            f"the database must be migrated, which servers and workers of an older version do not survive, and they "
            f"hold {connections} connections to it. Stop them all, then start this one. Nothing was changed, and runs "
            "that they leave are taken over."
        )


def version_of(engine: Engine) -> str | None:
    """The revision of a database; None if it is empty."""
    with engine.connect() as connection:
        return _version(connection)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def migrate(engine: Engine, to: str | None = None) -> tuple[str | None, str]:
    """Migrate the database to `HEAD`, or to an earlier revision. Returns the revision before and after."""
    before, goal = version_of(engine), to or HEAD
    if before is not None and before >= goal:
        return before, before
    # Imported only when needed: it is slow to load.
    from alembic import command

    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(811283)"))  # several processes may start at once
            _refuse_beside_older_processes(connection, goal)
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
