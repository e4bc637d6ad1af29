"""Bringing a database to this version's schema.

A database that is already there is recognised by one query, without loading Alembic, so that a start costs nothing.
Migrations run in one transaction: one that fails leaves the database as it was. They only ever add, so a process of the
version before goes on working beside the new one; one that starts on a database newer than itself leaves it alone.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from sqlalchemy import Engine, inspect, text

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0012"


def version_of(engine: Engine) -> str | None:
    """The revision a database is at; None if it is empty."""
    with engine.connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        return None if found is None else str(found)


def migrate(engine: Engine, to: str | None = None) -> tuple[str | None, str]:
    """Bring the database to `HEAD`, or an earlier revision; says where it was and where it is."""
    before, goal = version_of(engine), to or HEAD
    if before is not None and before >= goal:
        return before, before
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
