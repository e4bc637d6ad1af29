"""The fixture `database_url`: its tests run twice, on SQLite and on a real Postgres, with a fresh database each time.

The schema is migrated once per worker and copied, since a migration costs more than most tests. `empty_database_url`
is for tests of the migrations themselves.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from holdfast.storage.schema.migrate import migrate
from holdfast.storage.sql.database import make_engine
from holdfast.testing.postgres import PostgresServer

_numbers = count(1)


def migrated(url: str) -> str:
    engine = make_engine(url)
    migrate(engine)
    engine.dispose()
    return url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "holdfast.db"
    migrated(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    migrated(postgres_server.create_database("holdfast_template"))
    return "holdfast_template"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "holdfast.db")
        yield f"sqlite:///{tmp_path}/holdfast.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = f"copy_{next(_numbers)}"
    yield server.create_database(name, template=request.getfixturevalue("postgres_template"))
    server.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    url: str = request.getfixturevalue("postgres_url")
    return url
