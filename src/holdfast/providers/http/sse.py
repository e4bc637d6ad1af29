"""Splits raw chunks of bytes into server-sent events, for every API that streams.

A chunk may end anywhere: inside a line, between CR and LF, inside a UTF-8 character. So lines are cut on bytes, and
text is decoded only inside a whole event (by the JSON parser). `readline` is not used because it has a size limit and
one argument delta can exceed it.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.core.errors import ModelError

MAX_EVENT_BYTES = 16 * 1024 * 1024
MAX_EVENT_VALUES = 300_000  # an event is parsed on the event loop, and small values take the most time per byte


class Event(NamedTuple):
    """One event: its name (empty if the server gave none) and its data, lines joined."""

    name: bytes
    data: bytes


class EventSplitter:
    """Collects chunks and returns the events that are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()  # bytes of the unfinished event, with LF as line ends
        self._held_cr = b""  # a CR whose LF may be in the next chunk

    def feed(self, chunk: bytes) -> list[Event]:
        """Add a chunk. Only new bytes are searched, so an event in many chunks costs linear time."""
        if self._held_cr or b"\r" in chunk:
            chunk = self._held_cr + chunk
            self._held_cr = b"\r" if chunk.endswith(b"\r") else b""
            chunk = chunk.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        blocks: list[bytes] = []
        if not self._buffer:
            blocks = chunk.split(b"\n\n")
            self._buffer += blocks.pop()
        else:
            searched = len(self._buffer) - 1
            self._buffer += chunk
            if self._buffer.find(b"\n\n", searched) >= 0:
                blocks = bytes(self._buffer).split(b"\n\n")
                self._buffer = bytearray(blocks.pop())
        if len(self._buffer) > MAX_EVENT_BYTES:
            raise ModelError("llm_error", f"The model sent an event of more than {MAX_EVENT_BYTES} bytes.")
        for block in blocks:
            check_values(block)
        return [event for event in map(_parse, blocks) if event is not None]

    def close(self) -> list[Event]:
        """The end of the stream. Some servers leave out the last blank line, so the rest counts as an event."""
        check_values(self._buffer)
        event = _parse(bytes(self._buffer).strip(b"\n"))
        self._buffer, self._held_cr = bytearray(), b""
        return [] if event is None else [event]


def check_values(event: bytes | bytearray) -> None:
    """Refuse an event that may contain too many JSON values: each but the first of its list comes after a comma."""
    if len(event) > MAX_EVENT_VALUES and event.count(b",") > MAX_EVENT_VALUES:
        raise ModelError("llm_error", f"The model sent an event of more than {MAX_EVENT_VALUES} values.")


def _parse(block: bytes) -> Event | None:
    """The event in one block of lines; None for comments and keep-alives."""
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
