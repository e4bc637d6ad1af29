"""Running a job: one function of the tool's source is executed, and what came of it is written as one frame.

`cell` calls `serve`, in a process that is confined and lives for this one job. The result goes out on descriptor 3 as
one length-prefixed JSON frame, so nothing that the tool prints can be taken for a result. From the first line of the
tool's source on, this process belongs to the tool: the server must treat all that comes out of it as hostile.

It never reads the server's environment and opens no file. Standard library only.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import errno
import inspect
import io
import json
import linecache
import os
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from holdfast.tools import child_arguments, child_results, child_state

RESULT_FD = 3
MODULE_NAME = "tool"
TRACEBACK_FRAMES = 50


# ---- running --------------------------------------------------------------------------------------------


def serve(job: dict[str, Any]) -> int:
    """Run the job and write its frame; gives the exit code."""
    reply = run_job(job)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    payload = json.dumps(reply).encode()
    _write_all(len(payload).to_bytes(4, "big") + payload)
    return 0


def _write_all(frame: bytes) -> None:
    left = memoryview(frame)
    while left:
        left = left[os.write(RESULT_FD, left) :]


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """What came of the job, as the frame's object. SystemExit and the like are failures as well."""
    name = job["name"]
    filename = f"<tool {name}>"
    try:
        function = load(job["source_code"], name, filename)
        value, memory = _call(function, job)
        reply = child_results.reply(value, job["result_bytes"])
        return {**reply, "memory": memory} if memory else reply
    except child_results.Unreturnable as error:
        return _failure(f"Error executing function {name}: {error}", job["result_bytes"])
    except BaseException as error:
        with contextlib.suppress(Exception):
            sys.stderr.write(_own_traceback(error, filename))
        said = child_results.text_of_error(error) + _limit_behind(error, job.get("limits", {}))
        return _failure(f"Error executing function {name}: {said}", job["result_bytes"])


def _failure(text: str, limit: int) -> dict[str, Any]:
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "backslashreplace")
    if len(clean) > limit:
        clean = clean[: max(0, limit - 16)] + b" ... (truncated)"
    return {"status": "error", "content": clean.decode("utf-8", "ignore")}


def _limit_behind(error: BaseException, limits: dict[str, int]) -> str:
    """Name the limit that an error tells of, so that a model (and the tool's author) knows what to change."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        name, unit = "memory_bytes", "bytes of memory for one process"
    elif number in (errno.ENOSPC, errno.EFBIG):
        name, unit = "disk_bytes", "bytes of files"
    elif number == errno.EAGAIN:
        name, unit = "processes", "processes and threads"
    elif number == errno.EMFILE:
        name, unit = "open_files", "open files"
    elif isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        name, unit = "processes", "processes and threads"
    else:
        return ""
    return f" (the limit is {limits[name]} {unit})" if name in limits else ""


def load(source: str, name: str, filename: str) -> Callable[..., Any]:
    """Execute the source as a module; give the function of that name, else the last one defined at its top."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = types.ModuleType(MODULE_NAME)
    sys.modules[MODULE_NAME] = module
    # Annotations stay texts: the SDKs send a function alone, without the imports that its annotations name.
    lazy = __future__.annotations.compiler_flag
    exec(compile(source, filename, "exec", flags=lazy, dont_inherit=True), module.__dict__)
    function = module.__dict__.get(name)
    if isinstance(function, types.FunctionType) and function.__code__.co_filename == filename:
        return function
    tree = ast.parse(source, filename)
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    target = name if name in defined or not defined else defined[-1]
    function = module.__dict__.get(target)
    if not callable(function):
        raise NameError(f"the source defines no function named {target!r}")
    return function  # type: ignore[no-any-return]


def _call(function: Callable[..., Any], job: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What the function returned, and the memory blocks that it set. What it would do only when somebody waits for it
    or goes through it (a coroutine, a generator) is done here: else it would count as run without having run."""
    state = job["agent_state"]
    view = child_state.state_view(state)
    given, named = child_arguments.bind(function, job["arguments"], view)
    value = function(*given, **named)
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        value = _awaited(value)
    returned = list(value) if inspect.isgenerator(value) else value
    return returned, child_state.memory_changes(state, view)


def _awaited(value: Any) -> Any:
    """Imported only here: with asyncio in it every fork and every exit would take longer, for the few that use it."""
    import asyncio

    async def wait() -> Any:
        result = value
        while inspect.isawaitable(result):
            result = await result
        return [item async for item in result] if inspect.isasyncgen(result) else result

    return asyncio.run(wait())


def _own_traceback(error: BaseException, filename: str) -> str:
    """The traceback from the tool's first own frame on; our frames would only puzzle its author."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace, limit=TRACEBACK_FRAMES, chain=trace is not None)
    return "".join(lines)


def warm_up() -> None:
    """In the zygote: see to it that no call pays for first use."""
    rehearse()
    "".join(traceback.format_exception(ValueError("warm")))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What was printed before a kill should be seen, and no print should fail on its characters.
            stream.reconfigure(errors="backslashreplace", line_buffering=True)


def rehearse() -> None:
    """Run a small job, and leave nothing of it."""
    source = 'def warm(a: int, b: str = "x") -> dict:\n    """Warm."""\n    return {"a": a, "b": b}\n'
    job = {"name": "warm", "source_code": source, "arguments": {"a": 1}, "agent_state": None, "result_bytes": 1000}
    json.dumps(run_job(json.loads(json.dumps(job))))
    linecache.clearcache()
    sys.modules.pop(MODULE_NAME, None)
