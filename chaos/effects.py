"""Tools for the kill test whose effects are counted in a file, even if the process that ran them is killed.

Each call appends one line with its idempotency key to a file, in one `write` to a file opened for appending, before it
does anything else. The servers of the kill test are told to let tools reach that folder (`HOLDFAST_TOOL_FOLDERS`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = '''
def {name}(note: str) -> str:
    """Count one effect.

    Args:
        note: Whose effect it is.
    """
    import os
    import time

    key = os.environ["HOLDFAST_IDEMPOTENCY_KEY"]
    file = os.open("{path}", os.O_WRONLY | os.O_APPEND)
    os.write(file, (key + " " + note + "\\n").encode())
    os.close(file)
    time.sleep({seconds})
    return "counted " + key
'''


@dataclass(frozen=True, slots=True)
class Counting:
    """A tool with one combination of approval and retry settings."""

    name: str
    on_unknown: str
    gated: bool = False
    parallel: bool = True
    seconds: float = 0.1

    def body(self, path: Path) -> dict[str, Any]:
        return {
            "source_code": SOURCE.format(name=self.name, path=path, seconds=self.seconds),
            "default_requires_approval": self.gated,
            "enable_parallel_execution": self.parallel,
            "on_unknown": self.on_unknown,
        }


TOOLS = (
    Counting("count_ask", "ask"),
    Counting("count_retry", "retry"),
    Counting("count_tell", "tell"),
    Counting("count_alone", "ask", parallel=False, seconds=0.5),
    Counting("count_gated", "ask", gated=True),
)


class Effects:
    """The effects that the tools recorded."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o777, exist_ok=True)
        folder.chmod(0o777)
        self.folder = folder
        self.path = folder / "effects"
        self.path.touch()
        self.path.chmod(0o666)

    def by_key(self) -> Counter[str]:
        lines = self.path.read_text().splitlines()
        return Counter(line.partition(" ")[0] for line in lines)
