"""What operators and environments give to tools: folders that they may change, and packages built for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.tools.inside.confinement import Tier
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .conftest import options_for
from .processes import run


@pytest.fixture
def folder(scratch: Path) -> Path:
    made = scratch.with_name(scratch.name + "-given")
    made.mkdir()
    made.chmod(0o777)
    return made


async def test_a_folder_that_the_operator_names_can_be_read_and_changed(
    tier: Tier, scratch: Path, folder: Path
) -> None:
    (folder / "before").write_text("was here")
    toolbox = ProcessToolbox(scratch_root=scratch, writable=[folder], **options_for(tier))
    source = f"""
def tool():
    open("{folder}/after", "w").write("by the tool")
    return open("{folder}/before").read()
"""
    outcome = await run(toolbox, source)
    await toolbox.close()
    assert outcome.content == "was here"
    assert (folder / "after").read_text() == "by the tool"


async def test_packages_of_a_call_come_before_the_servers_and_cannot_be_changed(
    toolbox: ProcessToolbox, folder: Path
) -> None:
    (folder / "brought.py").write_text("name = 'brought'")
    (folder / "brought.py").chmod(0o666)
    source = """
import brought, pydantic
def tool():
    try:
        open(brought.__file__, "a").write("x")
    except OSError as error:
        return [brought.name, hasattr(pydantic, "BaseModel"), type(error).__name__ in ("OSError", "PermissionError")]
"""
    outcome = await run(toolbox, source, packages=(str(folder),))
    assert outcome.content == '["brought", true, true]'
    assert "ModuleNotFoundError" in str((await run(toolbox, source)).content)
    assert (folder / "brought.py").read_text() == "name = 'brought'"


async def test_packages_that_start_threads_when_imported_still_work(toolbox: ProcessToolbox, folder: Path) -> None:
    (folder / "threaded.py").write_text("import threading\nthreading.Thread(target=lambda: None).start()\nok = True")
    source = "import threaded\ndef tool():\n    return threaded.ok"
    assert (await run(toolbox, source, packages=(str(folder),))).content == "true"


async def test_ordinary_programs_of_a_tool_work(toolbox: ProcessToolbox) -> None:
    source = """
import asyncio, concurrent.futures, sqlite3, subprocess, tempfile, threading
async def tool() -> list:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        summed = sum(pool.map(abs, range(-3, 3)))
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(f"{folder}/x.db")
        row = database.execute("select 1 + 1").fetchone()[0]
    shell = subprocess.run(["/bin/sh", "-c", "echo from a shell"], capture_output=True, text=True).stdout.strip()
    process = await asyncio.create_subprocess_exec("/bin/echo", "async", stdout=subprocess.PIPE)
    return [summed, row, shell, (await process.communicate())[0].decode().strip()]
"""
    assert (await run(toolbox, source)).content == '[9, 2, "from a shell", "async"]'
