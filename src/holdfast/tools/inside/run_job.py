"""Run one job: execute the tool's source, call its function, and write the result as one frame.

`cell` calls `serve`, in a confined process that exists only for this job. The result is written to descriptor 3 as one
frame (`result_frame`), so printed output cannot be taken for a result. From the first line of the tool's source on, the
tool controls this process: the server must treat everything that comes out of it as hostile.

Nothing here reads the server's environment or opens a file.
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

from holdfast.tools.inside import agent_view, job_arguments, job_results, result_frame

RESULT_FD = 3
MODULE_NAME = "tool"
TRACEBACK_FRAMES = 50


# ---- running --------------------------------------------------------------------------------------------


def serve(job: dict[str, Any]) -> int:
    """Run the job and write its frame; returns the exit code."""
    reply = run_job(job)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    _write_all(result_frame.pack(reply))
    return 0


def _write_all(packed: bytes) -> None:
    left = memoryview(packed)
    while left:
        left = left[os.write(RESULT_FD, left) :]


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """The reply to the job, ready to be packed. SystemExit and KeyboardInterrupt are errors of the tool too."""
    name = job["name"]
    filename = f"<tool {name}>"
    try:
        function = load(job["source_code"], name, filename)
        value, memory = _call(function, job)
        reply = job_results.success_reply(value, job["result_bytes"])
        return {**reply, "memory": memory} if memory else reply
    except job_results.Unreturnable as error:
        return _failure(f"Error executing function {name}: {error}", job["result_bytes"])
    except BaseException as error:
        with contextlib.suppress(Exception):
            sys.stderr.write(_own_traceback(error, filename))
        message = job_results.text_of_error(error) + _limit_hint(error, job.get("limits", {}))
        return _failure(f"Error executing function {name}: {message}", job["result_bytes"])


def _failure(text: str, limit: int) -> dict[str, Any]:
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "backslashreplace")
    if len(clean) > limit:
        clean = clean[: max(0, limit - 16)] + b" ... (truncated)"
    return {"status": "error", "content": clean.decode("utf-8", "ignore")}


def _limit_hint(error: BaseException, limits: dict[str, int]) -> str:
    """Name the limit that an error points to, so that the model and the tool's author know what to change."""
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
    """Execute the source as a module; return the function `name`, else the last function defined at its top level."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = types.ModuleType(MODULE_NAME)
    sys.modules[MODULE_NAME] = module
    # Do not evaluate annotations: the SDKs send only the function, without the imports that its annotations use.
    lazy_annotations = __future__.annotations.compiler_flag
    exec(compile(source, filename, "exec", flags=lazy_annotations, dont_inherit=True), module.__dict__)
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
    """The function's return value, and the memory blocks that it set.

    Coroutines, async generators and generators are run to their end here; otherwise the call would count as done
    although the function's body had never run.
    """
    state = job["agent_state"]
    view = agent_view.state_view(state)
    positional, named = job_arguments.bind(function, job["arguments"], view)
    value = function(*positional, **named)
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        value = _await_result(value)
    returned = list(value) if inspect.isgenerator(value) else value
    return returned, agent_view.memory_changes(state, view)


def _await_result(value: Any) -> Any:
    """Run an awaitable or an async generator. asyncio is imported only here, because loading it in the zygote would
    slow down every fork and every exit, and few tools need it.
    """
    import asyncio

    async def wait() -> Any:
        result = value
        while inspect.isawaitable(result):
            result = await result
        return [item async for item in result] if inspect.isasyncgen(result) else result

    return asyncio.run(wait())


def _own_traceback(error: BaseException, filename: str) -> str:
    """The traceback from the first frame of the tool's own source on; Holdfast's frames would confuse its author."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace, limit=TRACEBACK_FRAMES, chain=trace is not None)
    return "".join(lines)


def warm_up() -> None:
    """Called in the zygote: load and compile everything that a call would otherwise pay for on first use."""
    run_sample_job()
    "".join(traceback.format_exception(ValueError("warm")))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Line buffering keeps what was printed before a kill; no print may fail on characters it cannot encode.
            stream.reconfigure(errors="backslashreplace", line_buffering=True)


def run_sample_job() -> None:
    """Run a small job and remove its traces."""
    source = 'def warm(a: int, b: str = "x") -> dict:\n    """Warm."""\n    return {"a": a, "b": b}\n'
    job = {"name": "warm", "source_code": source, "arguments": {"a": 1}, "agent_state": None, "result_bytes": 1000}
    result_frame.pack(run_job(json.loads(json.dumps(job))))
    linecache.clearcache()
    sys.modules.pop(MODULE_NAME, None)
