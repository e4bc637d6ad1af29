"""Migrates a database to this version's schema; called at start and by `holdfast migrate`.

An up-to-date database is recognised by one query, without loading Alembic, so that it does not slow down a start. All
migrations run in one transaction: if one fails, the database stays as it was. Migrations only add, so a process of the
previous version keeps working beside the new one. A process that finds a newer database leaves it unchanged.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from sqlalchemy import Engine, inspect, text

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0012"


def version_of(engine: Engine) -> str | None:
    """The revision of a database; None if it is empty."""
    with engine.connect() as connection:
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
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, goal)
    return before, goal


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(files("holdfast.storage") / "migrations"))
    return config
