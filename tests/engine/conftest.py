"""What several files of these tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.postgres import PostgresServer


@pytest.fixture
def shared_url(postgres_server: PostgresServer, postgres_template: str) -> Iterator[str]:
    yield postgres_server.create_database("several", template=postgres_template)
    postgres_server.drop_database("several")
