"""The Python SDK of early 2026, in a virtual environment of its own, against a real server on both databases.

What it does is in python_flow.py. The newest SDK is tested in test_python_sdk.py, inside the suite's own environment.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from server_fixture import Served

FLOW = Path(__file__).with_name("python_flow.py")
FLOW_SECONDS = 60.0

pytestmark = pytest.mark.timeout(600)  # the first test on a machine installs the SDK


@pytest.mark.parametrize("model", ["demo/rehearsal", "openai-proxy/gpt-4o-mini"])
def test_the_old_python_sdk_works_unchanged(served: Served, old_python_sdk: Path, model: str) -> None:
    done = subprocess.run(
        [old_python_sdk, "-W", "ignore::DeprecationWarning", FLOW, served.url, model],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=FLOW_SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}\nThe server's log:\n{served.server.log_path.read_text()}"


def test_tools_as_the_old_sdk_sends_them_run(served: Served, old_python_sdk: Path) -> None:
    shapes = FLOW.with_name("sdk_shapes.py")
    done = subprocess.run(
        [old_python_sdk, "-W", "ignore", shapes, served.url], capture_output=True, text=True, timeout=FLOW_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
