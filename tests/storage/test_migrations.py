"""Migrations build exactly the tables that the code defines, on both databases. Unless breaking, they only add."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from holdfast.storage.schema.migrate import (
    BREAKING,
    HEAD,
    VERSION_TABLE,
    NewerDatabase,
    OlderProcessRuns,
    OtherVersionRuns,
    migrate,
    refuse_beside_others,
    version_of,
)
from holdfast.storage.schema.record_tables import metadata
from holdfast.storage.sql.database import make_engine
from holdfast.testing.postgres import PostgresServer


def test_the_migrations_are_equal_to_the_tables(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    migrate(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "version_table": VERSION_TABLE})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_migrating_twice_changes_nothing(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    assert migrate(engine) == (None, HEAD)
    assert migrate(engine) == (HEAD, HEAD)
    assert version_of(engine) == HEAD
    engine.dispose()


def test_a_migration_that_is_not_breaking_only_adds_so_that_the_previous_version_keeps_working(
    empty_database_url: str,
) -> None:
    """Writes of an old process must still be accepted: no column of its tables is removed or changed, no new column is
    required, and no new uniqueness is enforced."""
    engine = make_engine(empty_database_url)
    before: dict[str, Any] = {}
    for number in range(1, int(HEAD) + 1):
        migrate(engine, f"{number:04}")
        after = tables_of(engine)
        if f"{number:04}" in BREAKING:
            before = {}  # refused beside a process of an older version; the test below
        for name, (columns, unique) in before.items():
            new_columns, new_unique = after[name]
            assert {column: new_columns.get(column) for column in columns} == columns, f"{number:04} changes {name}"
            required = [column for column in new_columns.keys() - columns.keys() if not new_columns[column][1]]
            assert required == [], f"{number:04} adds required columns to {name}"
            assert new_unique <= unique, f"{number:04} makes something in {name} unique"
        before = after
    assert version_of(engine) == HEAD
    engine.dispose()


def test_a_breaking_migration_is_refused_while_an_older_process_is_connected(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_database("breaking")
    engine = make_engine(url)
    oldest = min(BREAKING)
    migrate(engine, f"{int(oldest) - 1:04}")
    before = tables_of(engine)
    with psycopg.connect(url), pytest.raises(OlderProcessRuns, match=r"hold 1 connections to it\. Stop them all"):
        migrate(engine)
    assert version_of(engine) == f"{int(oldest) - 1:04}"
    assert tables_of(engine) == before
    with make_engine(url).connect():  # one of this version does not matter
        assert migrate(engine) == (f"{int(oldest) - 1:04}", HEAD)
    engine.dispose()


@pytest.mark.parametrize("other", ["holdfast 0012", "holdfast 0999"])
def test_a_process_does_not_start_beside_one_of_another_schema(postgres_url: str, other: str) -> None:
    engine = make_engine(postgres_url)
    migrate(engine)
    with psycopg.connect(postgres_url, application_name=other) as connection:
        connection.execute("SELECT 1")
        with pytest.raises(
            OtherVersionRuns, match=r"hold 1 connections to the database.* Stop them all, then start this"
        ):
            refuse_beside_others(engine)
    with make_engine(postgres_url).connect(), psycopg.connect(postgres_url, application_name="psql"):
        refuse_beside_others(engine)
    engine.dispose()


def test_a_process_does_not_start_on_a_database_that_a_newer_version_has_migrated(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for start in (refuse_beside_others, migrate):
        with pytest.raises(NewerDatabase, match=rf"migrated the database to 9999, and this one knows {HEAD}"):
            start(engine)
    engine.dispose()


def test_a_version_that_does_not_look_for_newer_ones_finds_no_database_that_it_could_use(
    empty_database_url: str,
) -> None:
    """Versions before 0019 take a database without `alembic_version` for an empty one, and fail to make its tables."""
    engine = make_engine(empty_database_url)
    migrate(engine, "0012")
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {VERSION_TABLE} RENAME TO alembic_version"))  # as they left it
    assert migrate(engine) == ("0012", HEAD)
    assert "alembic_version" not in inspect(engine).get_table_names()
    engine.dispose()


def tables_of(engine: Engine) -> dict[str, tuple[dict[str, tuple[str, bool]], set[str]]]:
    """Per table: its columns with their type and whether they may be omitted, and its unique constraints."""
    found = inspect(engine)
    return {
        name: (
            {
                column["name"]: (str(column["type"]), bool(column["nullable"] or column["default"] is not None))
                for column in found.get_columns(name)
            },
            {str(index["name"]) for index in found.get_indexes(name) if index["unique"]}
            | {str(constraint["name"]) for constraint in found.get_unique_constraints(name)},
        )
        for name in found.get_table_names()
    }
