"""`database_url`: every test that asks for it runs twice, on SQLite and on a real Postgres."""

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    url: str = request.getfixturevalue("postgres_url")
    return url
