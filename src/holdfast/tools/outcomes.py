"""From what came out of a tool's process to what the model reads. Pure functions; `process` calls them.

All of it is hostile input: the tool's process writes the frame itself, so a frame is believed only in its shape and
size. A frame that is not well formed is as good as none. Nothing here raises for anything that a tool can do.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from typing import Any

from holdfast.core.errors import TellTheModel
from holdfast.core.messages import Image, Text
from holdfast.core.pictures import KINDS
from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.tools import memory
from holdfast.tools.cage import DISK_BYTES
from holdfast.tools.cells import Ended
from holdfast.tools.images import image_from_base64

_HEADER_BYTES = 4
# The kernel kills by its ticks and tells the time used more exactly, so the two differ a little.
NEARLY = 0.8


def failed(job: ToolJob, what: str) -> ToolOutcome:
    """An error in our words, in the form in which all tool errors are told."""
    return ToolOutcome("error", f"Error executing function {job.name}: {what}")


def timed_out(job: ToolJob) -> ToolOutcome:
    return failed(job, f"the tool ran longer than {job.limits.wall_seconds:g} seconds and was killed")


def flooded(job: ToolJob) -> ToolOutcome:
    return failed(job, f"the result is larger than the limit of {job.limits.result_bytes} bytes")


def without_result(job: ToolJob, ended: Ended | None) -> ToolOutcome:
    """There was no frame, or no good one: all there is to say is how the process ended."""
    return failed(job, _no_result(job, ended))


def with_output(outcome: ToolOutcome, job: ToolJob, *, stdout: str, stderr: str) -> ToolOutcome:
    return replace(outcome, stdout=(stdout,) if stdout else (), stderr=(stderr,) if stderr else ())


def output_text(kept: bytes, truncated: bool) -> str:
    """Printed bytes as text that can be stored: no NUL, no broken UTF-8, and it says when it is not all."""
    text = kept.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"{text}\n[output truncated after {len(kept)} bytes]\n" if truncated else text


def _no_result(job: ToolJob, ended: Ended | None) -> str:
    if ended is None:
        return "the tool's process was lost before it gave a result"
    if ended.limit == "memory":
        return f"the tool's processes took more than {job.limits.memory_bytes} bytes of memory and were killed"
    if ended.limit == "disk":
        return f"the tool wrote more than {DISK_BYTES} bytes, or too many files, and was killed"
    code = os.waitstatus_to_exitcode(ended.status)
    if code == -signal.SIGKILL and ended.cpu_seconds >= job.limits.cpu_seconds * NEARLY:
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
    size = int.from_bytes(raw[:_HEADER_BYTES], "big")
    payload = raw[_HEADER_BYTES : _HEADER_BYTES + size]
    if len(raw) < _HEADER_BYTES or len(payload) != size:
        return None
    try:
        reply = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(reply, dict) or reply.get("status") not in ("success", "error"):
        return None
    outcome = _parts_outcome(reply, job) if "parts" in reply else _text_outcome(reply, job)
    if outcome is None or outcome.status == "error" or "memory" not in reply:
        return outcome
    return _with_memory(outcome, reply["memory"], job)


def _with_memory(outcome: ToolOutcome, asked: Any, job: ToolJob) -> ToolOutcome:
    """What the tool asks of its agent's memory, checked like an edit by a model; all of it or nothing."""
    try:
        return replace(outcome, edits=memory.edits_asked(job.blocks, asked))
    except TellTheModel as error:
        said = outcome.content if isinstance(outcome.content, str) else "(parts)"
        return failed(job, f"the tool ran and returned: {said}\nIts change of memory was refused: {error}")


def _text_outcome(reply: dict[str, Any], job: ToolJob) -> ToolOutcome | None:
    content = reply.get("content")
    if not isinstance(content, str) or not _storable(content):
        return None
    if len(content.encode()) > job.limits.result_bytes:
        return flooded(job)
    return ToolOutcome(reply["status"], content)


def _storable(text: str) -> bool:
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parts_outcome(reply: dict[str, Any], job: ToolJob) -> ToolOutcome | None:
    listed = reply["parts"]
    if not isinstance(listed, list) or not listed:
        return None
    parts = tuple(_part(item) for item in listed)
    good = tuple(part for part in parts if part is not None)
    if len(good) != len(parts):
        return failed(job, f"the result holds a content part that is neither a text nor a base64 image: {KINDS}")
    return ToolOutcome(reply["status"], good)


def _part(item: Any) -> Text | Image | None:
    if not isinstance(item, dict):
        return None
    text, source = item.get("text"), item.get("source")
    if item.get("type") == "text" and isinstance(text, str) and _storable(text):
        return Text(text)
    if item.get("type") == "image" and isinstance(source, dict):
        return _image(source)
    return None


def _image(source: dict[str, Any]) -> Image | None:
    data = source.get("data")
    return image_from_base64(data) if source.get("type") == "base64" and isinstance(data, str) else None
