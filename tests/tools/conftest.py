"""Toolboxes for the tests, in each tier that this machine can have; closing one is part of every test.

Tier B is chosen by force: it is what a server finds in a plain container. As root it needs an interpreter that another
user can execute; one under /root is none, and the system's own takes its place.
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
from holdfast.tools.cage import Tier
from holdfast.tools.process import ProcessToolbox

from .processes import make_toolbox


@functools.cache
def means_of(tier: Tier) -> dict[str, Any]:
    """What a toolbox of this tier is made with. Skips the test if this machine cannot have the tier."""
    python = sys.executable if tier == "A" else python_for_everyone()
    if python is None:
        pytest.skip("there is no Python here that an unprivileged user can run, which tier B needs")
    return {"tiers": (tier,), "python": python}


@pytest.fixture(params=["A", "B"])
def tier(request: pytest.FixtureRequest) -> Tier:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that another user can pass through, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as name:
        made = Path(name)
        made.chmod(0o711)
        yield made


@pytest.fixture
async def toolbox(tier: Tier, scratch: Path) -> AsyncIterator[ProcessToolbox]:
    made = make_toolbox(scratch_root=scratch, **means_of(tier))
    found = await made.isolation()
    if not found.runs:
        await made.close()
        pytest.skip(f"tier {tier} cannot be had here: {found.why_not}")
    yield made
    await made.close()
    assert os.listdir(scratch) == []
