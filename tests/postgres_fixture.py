"""The fixture `postgres_url`: a fresh, empty database on a real Postgres, dropped after the test.

Each pytest worker starts one server when its first test needs it (about a second); after that a database costs
30 ms. A suite that needs the tables in place makes them once in a database of its own and copies it for each test:
`postgres_server.create_database(name, template=...)`.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from holdfast.testing.postgres import PostgresServer

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)
