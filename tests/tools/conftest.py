"""Toolboxes for the tests, in each tier that this machine supports. Every test also checks that closing one leaves no
files.

Tier B is forced: it is what a server detects in a plain container. As root it needs an interpreter that another user
can execute; if ours is under /root, the system's own is used.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from denied import python_for_everyone
from holdfast.tools.inside.confinement import Tier
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .attacked_server import packages, server, shared
from .processes import make_toolbox

__all__ = ["packages", "server", "shared"]  # fixtures


@functools.cache
def options_for(tier: Tier) -> dict[str, Any]:
    """The options of a toolbox of this tier. Skips the test if this machine does not support the tier."""
    python = sys.executable if tier == "A" else python_for_everyone()
    if python is None:
        pytest.skip("there is no Python here that an unprivileged user can run, which tier B needs")
    return {"tiers": (tier,), "python": python}


@pytest.fixture(params=["A", "B"])
def tier(request: pytest.FixtureRequest) -> Tier:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that other users can pass through, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as name:
        made = Path(name)
        made.chmod(0o711)
        yield made


@pytest.fixture
async def toolbox(tier: Tier, scratch: Path) -> AsyncIterator[ProcessToolbox]:
    made = make_toolbox(scratch_root=scratch, **options_for(tier))
    found = await made.isolation()
    if not found.runs:
        await made.close()
        pytest.skip(f"tier {tier} is not available here: {found.why_not}")
    yield made
    await made.close()
    assert os.listdir(scratch) == []
