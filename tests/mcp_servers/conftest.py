"""A Holdfast that may reach loopback and start programs, on each database, and MCP servers over every transport.

Both are shared by a module, since starting them takes seconds. A test that kills one makes its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from letta_client import Letta

from holdfast.testing.postgres import PostgresServer
from holdfast.testing.server import ServerProcess
from mcp_peer import Peer

ENVIRONMENT = {
    "HOLDFAST_ALLOW_PRIVATE_URLS": "true",
    "HOLDFAST_ENCRYPTION_KEY": "a key of the tests",
    "HOLDFAST_MCP_STDIO_UNSANDBOXED": "true",
    "HOLDFAST_MCP_TIMEOUT_SECONDS": "10",
    "HOLDFAST_LOG_LEVEL": "debug",
    "HOLDFAST_DEMO": "false",
}
_numbers = count(1)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def holdfast(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('holdfast')}/holdfast.db"
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        url = postgres.create_database(f"mcp_{next(_numbers)}_{abs(hash(request.node.nodeid)) % 10**9}")
    with ServerProcess(url, **ENVIRONMENT) as server:
        yield server


@pytest.fixture
def client(holdfast: ServerProcess) -> Iterator[Letta]:
    """Every MCP server that a test made is gone after it."""
    with Letta(base_url=holdfast.url, max_retries=0) as sdk:
        yield sdk
        for server in sdk.mcp_servers.list():
            assert server.id is not None
            sdk.mcp_servers.delete(server.id)


@pytest.fixture(scope="module", params=["streamable_http", "legacy_http", "sse", "stdio"])
def any_peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with Peer(request.param, tmp_path_factory.mktemp("peer")) as running:
        yield running


@pytest.fixture(scope="module")
def http_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with Peer("streamable_http", tmp_path_factory.mktemp("peer")) as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_noted_yet(request: pytest.FixtureRequest) -> None:
    for name in ("any_peer", "http_peer"):
        if name in request.fixturenames:
            request.getfixturevalue(name).notes_path.write_text("")


@pytest.fixture
def own_peer(tmp_path: Path) -> Iterator[Peer]:
    """One that may be killed."""
    with Peer("streamable_http", tmp_path / "peer") as running:
        yield running
