"""Fixtures for attacks on a server process: four kinds of servers, and folders that tools can read or write.

Each attack is tried on four servers: as root and as an ordinary user, with namespaces (tier A) and with namespaces
denied as in a plain container (tier B). In tier B as an ordinary user, the tool is the same user as its server.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import denied
from denied import SOMEBODY

HOST = Path(__file__).with_name("hostile_host.py")
KINDS = {"root-A": ("", 0), "root-B": ("unshare", 0), "user-A": ("", SOMEBODY), "user-B": ("unshare", SOMEBODY)}


class Server(Protocol):
    """Runs calls on one server, and returns the server's report about itself."""

    def __call__(self, *calls: dict[str, Any], **more: Any) -> dict[str, Any]: ...


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Server:
    """A server of each kind."""
    refused, uid = KINDS[request.param]
    if os.getuid() != 0 and uid == 0:
        pytest.skip("only root can be root")
    argv = denied.argv("import runpy; runpy.run_path(sys.argv[1], run_name='__main__')", refused, uid, str(HOST))

    def run(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
        request_text = json.dumps({"calls": calls, **more})
        done = subprocess.run(
            argv, cwd="/", env=denied.environment(), input=request_text, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        wanted = request.param[-1]
        if seen["tier"] != wanted:
            assert wanted == "A"
            assert "unshare" in str(seen["why_not"]), seen["why_not"]
            pytest.skip(f"this machine has no tier A for {request.param}: {seen['why_not']}")
        assert seen["after"] == seen["before"]
        assert seen["left_after_close"] == []
        return seen

    return run


@pytest.fixture
def packages() -> Iterator[Path]:
    """A folder of packages that every user can read, like an installed environment."""
    with tempfile.TemporaryDirectory(prefix="holdfast-packages-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can write to, including tools."""
    with tempfile.TemporaryDirectory(prefix="holdfast-shared-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def results(seen: dict[str, Any]) -> list[Any]:
    assert [status for status, _content in seen["outcomes"]] == ["success"] * len(seen["outcomes"]), seen["outcomes"]
    return [json.loads(content) for _status, content in seen["outcomes"]]
