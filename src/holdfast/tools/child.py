"""The tool's own process: it narrows itself, runs one function of the tool's source, and writes one result frame.

The supervisor forks it and calls `prepare`, then `serve`; it lives for one call. The job (source, arguments,
environment) comes in on a descriptor of its own, the result goes out on descriptor 3 as one length-prefixed JSON
frame, so nothing that the tool prints can be taken for a result. From the first line of the tool's source on, this
process belongs to the tool: the server must treat all that comes out of it as hostile.

It never reads the server's environment, and it opens nothing but its scratch directory. Standard library only.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import linecache
import os
import resource
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.tools import child_values, linux

RESULT_FD = 3
MODULE_NAME = "tool"
NICENESS = 10
OPEN_FILES = 256
FILE_BYTES = 64 * 1024 * 1024
TRACEBACK_FRAMES = 50


class ToolFiles(NamedTuple):
    """The descriptors that the tool's process gets."""

    job: int
    stdout: int
    stderr: int
    result: int


# ---- narrowing ------------------------------------------------------------------------------------------


def prepare(files: ToolFiles, order: dict[str, Any]) -> dict[str, Any]:
    """Leave the server's side behind: own session, descriptors, limits, directory and environment."""
    os.setsid()
    os.nice(NICENESS)
    linux.gain_no_privileges()
    text = os.pread(files.job, os.fstat(files.job).st_size, 0)
    _rewire(files)
    os.chdir(order["scratch"])
    _limit(order["limits"], order["thread_ceiling"])
    job: dict[str, Any] = json.loads(text)
    os.environ.clear()
    os.environ.update(job["environment"])
    return job


def _rewire(files: ToolFiles) -> None:
    """Nothing but /dev/null, the two outputs and the result stays open; the result is not for subprocesses."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(files.stdout, 1)
    os.dup2(files.stderr, 2)
    os.dup2(files.result, RESULT_FD, inheritable=False)
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > RESULT_FD:
            with contextlib.suppress(OSError):
                os.close(int(entry))


def _limit(limits: dict[str, int], thread_ceiling: int | None) -> None:
    wanted = {
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: FILE_BYTES,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if thread_ceiling is not None:
        wanted[resource.RLIMIT_NPROC] = thread_ceiling
    for kind, value in wanted.items():
        # A second between SIGXCPU and SIGKILL, so that spent processor time can be told from other deaths.
        ceiling = value + 1 if kind == resource.RLIMIT_CPU else value
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value, ceiling = min(value, hard), min(ceiling, hard)
        resource.setrlimit(kind, (value, ceiling))


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
        value = _call(function, job)
        return child_values.reply(value, job["result_bytes"])
    except child_values.Unreturnable as error:
        return _failure(f"Error executing function {name}: {error}", job["result_bytes"])
    except BaseException as error:
        with contextlib.suppress(Exception):
            sys.stderr.write(_own_traceback(error, filename))
        said = child_values.text_of_error(error)
        return _failure(f"Error executing function {name}: {said}", job["result_bytes"])


def _failure(text: str, limit: int) -> dict[str, Any]:
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "backslashreplace")
    if len(clean) > limit:
        clean = clean[: max(0, limit - 16)] + b" ... (truncated)"
    return {"status": "error", "content": clean.decode("utf-8", "ignore")}


def load(source: str, name: str, filename: str) -> Callable[..., Any]:
    """Execute the source as a module; give the function of that name, else the last one defined at its top."""
    tree = ast.parse(source, filename)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = types.ModuleType(MODULE_NAME)
    sys.modules[MODULE_NAME] = module
    exec(compile(tree, filename, "exec", dont_inherit=True), module.__dict__)
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    target = name if name in defined or not defined else defined[-1]
    function = module.__dict__.get(target)
    if not callable(function):
        raise NameError(f"the source defines no function named {target!r}")
    return function  # type: ignore[no-any-return]


def _call(function: Callable[..., Any], job: dict[str, Any]) -> Any:
    given, named = child_values.bind(function, job["arguments"], job["agent_state"])
    value = function(*given, **named)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def _own_traceback(error: BaseException, filename: str) -> str:
    """The traceback from the tool's first own frame on; our frames would only puzzle its author."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace, limit=TRACEBACK_FRAMES, chain=trace is not None)
    return "".join(lines)


def warm_up() -> None:
    """Run a small job in the fork server, so that no call pays for first use."""
    source = 'def warm(a: int, b: str = "x") -> dict:\n    """Warm."""\n    return {"a": a, "b": b}\n'
    job = {"name": "warm", "source_code": source, "arguments": {"a": 1}, "agent_state": None, "result_bytes": 1000}
    json.dumps(run_job(json.loads(json.dumps(job))))
    "".join(traceback.format_exception(ValueError("warm")))
    linecache.clearcache()
    sys.modules.pop(MODULE_NAME, None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What was printed before a kill should be seen, and no print should fail on its characters.
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
