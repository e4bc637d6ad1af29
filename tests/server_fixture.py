"""The fixtures `served` and `model_server_url`: real servers for HTTP tests, one process per database and test module.

`served` is a running Holdfast on each database, shared by the tests of a module; `model_server_url` is a server with
the vendors' APIs on loopback. A test that kills its server starts its own with `ServerProcess`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from letta_client import Letta

from holdfast.testing.postgres import PostgresServer
from holdfast.testing.process_factory import ProcessFactory
from holdfast.testing.server import ServerProcess


class StartedAnew(ServerProcess):
    """Started with a new interpreter, as users start it."""

    factory = None


@pytest.fixture(scope="session", autouse=True)
def process_factory() -> Iterator[None]:
    """Fork all other servers from one process with all modules loaded: imports took half of the suite's time."""
    ServerProcess.factory = ProcessFactory()
    yield
    ServerProcess.factory.close()
    ServerProcess.factory = None


@dataclass(frozen=True)
class Served:
    server: ServerProcess
    url: str
    database: str
    model_server: str

    def client(self, **options: object) -> Letta:
        return Letta(base_url=self.url, max_retries=0, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def model_server_url() -> Iterator[str]:
    """The model server in its own process; without a script it behaves like the demo model."""
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.testing.model_server", "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield line.strip().split()[-1].rstrip("/")
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, model_server_url: str
) -> Iterator[Served]:
    kind: str = request.param
    name = f"served_{abs(hash(request.node.nodeid)) % 10**9}"
    if kind == "sqlite":
        path = tmp_path_factory.mktemp("served") / "holdfast.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        url = f"sqlite:///{path}"
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        url = postgres.create_database(name, template=request.getfixturevalue("postgres_template"))
    environment = {
        "HOLDFAST_ENCRYPTION_KEY": "a key of the tests",
        "OPENAI_BASE_URL": f"{model_server_url}/v1",
        "OPENAI_API_KEY": "test-key",
        "ANTHROPIC_BASE_URL": model_server_url,
        "ANTHROPIC_API_KEY": "test-key",
        "GEMINI_BASE_URL": f"{model_server_url}/v1beta",
        "GEMINI_API_KEY": "test-key",
        "AZURE_BASE_URL": model_server_url,
        "AZURE_API_KEY": "test-key",
    }
    with ServerProcess(url, **environment) as server:
        yield Served(server, server.url, kind, model_server_url)
    if kind == "postgres":
        request.getfixturevalue("postgres_server").drop_database(name)
