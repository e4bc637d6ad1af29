"""One toolbox per test; closing it is part of every test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.tools.process import ProcessToolbox


@pytest.fixture
async def toolbox(tmp_path: Path) -> AsyncIterator[ProcessToolbox]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    made = ProcessToolbox(scratch_root=scratch)
    yield made
    await made.close()
    assert list(scratch.iterdir()) == []
