"""The newest TypeScript SDK against a real server on both databases. What it does is in typescript_flow.mjs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from server_fixture import Served

FLOW = Path(__file__).with_name("typescript_flow.mjs")
FLOW_SECONDS = 60.0

pytestmark = pytest.mark.timeout(600)  # the first test on a machine installs the SDK


@pytest.mark.parametrize("model", ["demo/rehearsal", "anthropic/claude-sonnet-4-5"])
def test_the_typescript_sdk_works_unchanged(served: Served, typescript_sdk: Path, tmp_path: Path, model: str) -> None:
    (tmp_path / "node_modules").symlink_to(typescript_sdk)
    flow = shutil.copy(FLOW, tmp_path)
    done = subprocess.run(
        ["node", flow, served.url, model],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=FLOW_SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}\nThe server's log:\n{served.server.log_path.read_text()}"
