"""Server-sent events out of raw chunks, for every wire that streams.

Bytes go in as they come off the socket, whole events come out. A chunk may end anywhere: inside a line, between
CR and LF, inside a UTF-8 character; so lines are cut on bytes and text is decoded only inside a whole event (by
the JSON parser). `readline` is not used because it has a size limit and one argument delta can exceed it.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.errors import ModelError

MAX_EVENT_BYTES = 32 * 1024 * 1024


class Event(NamedTuple):
    """One event: its name (empty if the server gave none) and its data, lines joined."""

    name: bytes
    data: bytes


class EventSplitter:
    """Collects chunks and gives back the events that are whole."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        rest = self._rest + chunk if self._rest else chunk
        held = b""
        if b"\r" in rest:
            if rest.endswith(b"\r"):  # its LF may be in the next chunk
                rest, held = rest[:-1], b"\r"
            rest = rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks = rest.split(b"\n\n")
        self._rest = blocks.pop() + held
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ModelError("llm_error", f"The model sent an event of more than {MAX_EVENT_BYTES} bytes.")
        return [event for event in map(_parse, blocks) if event is not None]

    def close(self) -> list[Event]:
        """The end of the bytes. Some servers leave out the last blank line, so what is left counts."""
        event = _parse(self._rest.replace(b"\r\n", b"\n").strip(b"\r\n"))
        self._rest = b""
        return [] if event is None else [event]


def _parse(block: bytes) -> Event | None:
    """One block of lines; None for comments and keep-alives."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return Event(b"", block[6:])
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return Event(name, b"\n".join(data)) if data else None
