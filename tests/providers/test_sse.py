"""Server-sent events are parsed correctly wherever the chunks are cut."""

from __future__ import annotations

import pytest

from holdfast.core.errors import ModelError
from holdfast.providers.http import sse
from holdfast.providers.http.sse import Event, EventSplitter

STREAM = (
    'event: delta\r\ndata: {"text":"océan 🌊"}\r\n\r\n: keep-alive\r\n\r\n'
    "data: a\r\ndata: b\r\n\r\ndata: [DONE]\r\n\r\n"
)
EVENTS = [Event(b"delta", '{"text":"océan 🌊"}'.encode()), Event(b"", b"a\nb"), Event(b"", b"[DONE]")]


def split(*chunks: bytes) -> list[Event]:
    splitter = EventSplitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events + splitter.close()


@pytest.mark.parametrize("line_end", ["\r\n", "\n", "\r"])
def test_a_stream_cut_in_two_anywhere_gives_the_same_events(line_end: str) -> None:
    stream = STREAM.replace("\r\n", line_end).encode()
    for cut in range(len(stream) + 1):
        assert split(stream[:cut], stream[cut:]) == EVENTS


def test_a_stream_that_comes_byte_by_byte_gives_the_same_events() -> None:
    assert split(*(bytes([byte]) for byte in STREAM.encode())) == EVENTS


def test_the_last_blank_line_may_be_missing() -> None:
    assert split(b"data: [DONE]") == split(b"data: [DONE]\r\n") == [Event(b"", b"[DONE]")]


def test_a_field_needs_no_blank_after_its_colon() -> None:
    assert split(b"data:x\n\n") == [Event(b"", b"x")]


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 10)
    with pytest.raises(ModelError, match="more than 10 bytes"):
        split(b"data: " + b"x" * 20)


def test_an_event_of_very_many_values_is_refused_before_it_is_parsed() -> None:
    values = b"0," * (sse.MAX_EVENT_VALUES + 1)
    for stream in (b"data: [" + values + b"0]\n\n", b"data: [" + values + b"0]"):
        with pytest.raises(ModelError, match="more than 300000 values"):
            split(stream)
