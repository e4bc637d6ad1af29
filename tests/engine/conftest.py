"""Fixtures that several files of these tests use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from engine.house import House, opened
from holdfast.testing.postgres import PostgresServer


@pytest.fixture
def shared_url(postgres_server: PostgresServer, postgres_template: str) -> Iterator[str]:
    yield postgres_server.create_database("several", template=postgres_template)
    postgres_server.drop_database("several")


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    """One engine with the default options, on each database. A test that needs others calls `opened` itself."""
    async with opened(database_url) as made:
        yield made
