"""Encode a tool call as the JSON message that its cell receives, and check that it can be encoded.

`process_toolbox` calls it; `inside.cell` and `inside.run_job` read the message.
"""

from __future__ import annotations

import json
import resource

from holdfast.ports.toolbox import ToolJob
from holdfast.tools.inside.confinement import DISK_BYTES
from holdfast.tools.sandbox.fork_server import EMPTY_ENVIRONMENT

SOURCE_BYTES = 1024 * 1024
DESCRIPTORS_PER_MESSAGE = 253  # SCM_MAX_FD of the kernel
MIN_OPEN_FILES = 64
IDEMPOTENCY_VARIABLE = "HOLDFAST_IDEMPOTENCY_KEY"


def problem_with(job: ToolJob) -> str | None:
    if len(job.source_code) > SOURCE_BYTES:
        return f"its source is larger than {SOURCE_BYTES} bytes"
    for name, value in job.environment.items():
        if not name or "=" in name or "\0" in name + value:
            return f"the environment variable {name!r} cannot be set; rename it or change its value"
    return None


def _max_open_files() -> int:
    """The most files that a tool may open without keeping the server from sending descriptors.

    Descriptors that were sent but not yet received count for the whole user, against the limit of the sending process.
    A tool may send as many as it may open plus one message, and the server must still be able to send.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MIN_OPEN_FILES if soft < 0 else max(MIN_OPEN_FILES, (soft - DESCRIPTORS_PER_MESSAGE) // 2)


def encode_job(job: ToolJob) -> bytes:
    """The message for the tool's process. No other process receives it."""
    limits = job.limits
    message = {
        "name": job.name,
        "source_code": job.source_code,
        "arguments": dict(job.arguments),
        "agent_state": None if job.agent_state is None else dict(job.agent_state),
        "environment": {**EMPTY_ENVIRONMENT, **job.environment, IDEMPOTENCY_VARIABLE: job.idempotency_key},
        "result_bytes": limits.result_bytes,
        "limits": {
            "cpu_seconds": limits.cpu_seconds,
            "memory_bytes": limits.memory_bytes,
            "processes": limits.processes,
            "open_files": min(limits.open_files, _max_open_files()),
            "disk_bytes": DISK_BYTES,
        },
    }
    return json.dumps(message, default=str).encode()
