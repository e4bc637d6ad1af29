"""The migrations build exactly the tables that the code knows, on both databases."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from holdfast.storage.database import make_engine
from holdfast.storage.migrate import HEAD, migrate, version_of
from holdfast.storage.tables import metadata


def test_the_migrations_are_equal_to_the_tables(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    migrate(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_migrating_twice_changes_nothing(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    assert migrate(engine) == (None, HEAD)
    assert migrate(engine) == (HEAD, HEAD)
    assert version_of(engine) == HEAD
    engine.dispose()
