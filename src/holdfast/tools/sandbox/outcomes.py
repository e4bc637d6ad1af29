"""Turn the raw output of a tool's process into the outcome that the model reads. Pure functions for `process_toolbox`.

All of it is hostile input: the tool's process writes the frame itself, so only its shape and size are checked and
nothing in it is trusted. A malformed frame counts as no frame. No function here raises for anything that a tool can do.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

from holdfast.core.conversation.images import KINDS
from holdfast.core.conversation.messages import Image, Text
from holdfast.core.errors import TellTheModel
from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.tools.base64_images import image_from_base64
from holdfast.tools.builtin import memory_edits
from holdfast.tools.inside import result_frame
from holdfast.tools.inside.confinement import DISK_BYTES
from holdfast.tools.sandbox.cell_handle import Ended


def failed(job: ToolJob, what: str) -> ToolOutcome:
    """An error of the server, in the format of all tool errors."""
    return ToolOutcome("error", f"Error executing function {job.name}: {what}")


def timed_out(job: ToolJob) -> ToolOutcome:
    return failed(job, f"the tool ran longer than {job.limits.wall_seconds:g} seconds and was killed")


def result_too_large(job: ToolJob) -> ToolOutcome:
    return failed(job, f"the result is larger than the limit of {job.limits.result_bytes} bytes")


def without_result(job: ToolJob, ended: Ended | None) -> ToolOutcome:
    """The outcome when there is no valid frame: it says how the process ended."""
    return failed(job, _no_result(job, ended))


def with_output(outcome: ToolOutcome, job: ToolJob, *, stdout: str, stderr: str) -> ToolOutcome:
    return replace(outcome, stdout=(stdout,) if stdout else (), stderr=(stderr,) if stderr else ())


def output_text(kept: bytes, truncated: bool) -> str:
    """Printed bytes as text that can be stored: without NUL and broken UTF-8, and with a note if it is truncated."""
    text = kept.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"{text}\n[output truncated after {len(kept)} bytes]\n" if truncated else text


def _no_result(job: ToolJob, ended: Ended | None) -> str:
    if ended is None:
        return "the tool's process was lost before it gave a result"
    if ended.limit == "memory":
        return f"the tool's processes took more than {job.limits.memory_bytes} bytes of memory and were killed"
    if ended.limit == "disk":
        what = f"more than {DISK_BYTES} bytes, or too many files, or folders nested too deeply"
        return f"the tool wrote {what}, and was killed"
    if ended.limit == "unmeasurable":
        return "the memory and the files of the tool could not be measured, and it was killed"
    code = os.waitstatus_to_exitcode(ended.status)
    if code == -signal.SIGKILL and ended.cpu_seconds >= job.limits.cpu_seconds:
        return f"the tool used more than {job.limits.cpu_seconds} seconds of processor time and was killed"
    if code < 0:
        return f"tool ended without a result (killed by {_signal_name(-code)})"
    return f"tool ended without a result (exit code {code})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---- the frame ------------------------------------------------------------------------------------------


def read_frame(raw: bytes, job: ToolJob) -> ToolOutcome | None:
    """The outcome in the first frame, or None if there is no well-formed one."""
    try:
        reply = result_frame.unpack(raw, job.limits.result_bytes)
    except result_frame.TooLarge:
        return result_too_large(job)
    if reply is None or reply["status"] not in ("success", "error"):
        return None
    outcome = _parts_outcome(reply, job) if "parts" in reply else _text_outcome(reply)
    if outcome is None or outcome.status == "error" or "memory" not in reply:
        return outcome
    return _with_memory(outcome, reply["memory"], job)


def _with_memory(outcome: ToolOutcome, changes: Any, job: ToolJob) -> ToolOutcome:
    """Check the tool's changes to memory like edits by a model, and add them to the outcome; all of them or none."""
    try:
        return replace(outcome, edits=memory_edits.edits_from_tool(job.blocks, changes))
    except TellTheModel as error:
        content = outcome.content if isinstance(outcome.content, str) else "(parts)"
        return failed(job, f"the tool ran and returned: {content}\nIts change of memory was refused: {error}")


def _text_outcome(reply: dict[str, Any]) -> ToolOutcome | None:
    content = reply["content"]
    return None if "\0" in content else ToolOutcome(reply["status"], content)


def _parts_outcome(reply: dict[str, Any], job: ToolJob) -> ToolOutcome | None:
    if not reply["parts"]:
        return None
    parts = tuple(map(_part, reply["parts"]))
    good = tuple(part for part in parts if part is not None)
    if len(good) != len(parts):
        return failed(job, f"the result holds a content part that is neither a text nor a base64 image: {KINDS}")
    return ToolOutcome(reply["status"], good)


def _part(item: dict[str, Any]) -> Text | Image | None:
    if item["type"] == "image":
        return image_from_base64(item["source"]["data"])
    return Text(item["text"]) if item["type"] == "text" and "\0" not in item["text"] else None
