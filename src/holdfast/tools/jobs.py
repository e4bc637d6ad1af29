"""A call as its process is told of it: one JSON object, and the checks that it can be told at all.

`process` asks; `cell` and `child` are the readers.
"""

from __future__ import annotations

import json

from holdfast.ports.toolbox import ToolJob
from holdfast.tools.cage import DISK_BYTES
from holdfast.tools.forkserver import EMPTY_ENVIRONMENT

SOURCE_BYTES = 1024 * 1024
IDEMPOTENCY_VARIABLE = "HOLDFAST_IDEMPOTENCY_KEY"


def problem_with(job: ToolJob) -> str | None:
    if len(job.source_code) > SOURCE_BYTES:
        return f"its source is larger than {SOURCE_BYTES} bytes"
    for name, value in job.environment.items():
        if not name or "=" in name or "\0" in name + value:
            return f"the environment variable {name!r} cannot be set; rename it or change its value"
    return None


def job_text(job: ToolJob) -> bytes:
    """What the tool's process is told, and only that process."""
    limits = job.limits
    told = {
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
            "open_files": limits.open_files,
            "disk_bytes": DISK_BYTES,
        },
    }
    return json.dumps(told, default=str).encode()
