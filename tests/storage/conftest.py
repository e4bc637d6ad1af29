"""Many runs, inserted once for a module, for tests that list them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine

from database_fixture import migrated
from holdfast.storage.sql.database import make_engine
from storage.run_rows import COUNT, Row, fill


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def many_runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, list[Row]]]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('listing')}/holdfast.db"
    else:
        url = request.getfixturevalue("postgres_server").create_database(
            f"listing_{request.module.__name__.rpartition('.')[2]}"
        )
    engine = make_engine(migrated(url))
    with engine.begin() as connection:
        rows = fill(connection, COUNT)
    yield engine, rows
    engine.dispose()


@pytest.fixture
def filled(many_runs: tuple[Engine, list[Row]]) -> Iterator[tuple[Connection, list[Row]]]:
    """What a test changes in them is undone."""
    engine, rows = many_runs
    with engine.connect() as connection, connection.begin() as transaction:
        yield connection, rows
        transaction.rollback()
