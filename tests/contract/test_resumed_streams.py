"""A stream that is resumed begins with the record after the cursor, and adds no ping of its own."""

from __future__ import annotations

from typing import Any

import pytest

from clients.test_python_sdk import make_agent
from server_fixture import Served


@pytest.fixture
def streamed(served: Served) -> tuple[Any, list[Any]]:
    client, agent = make_agent(served)
    say = [{"role": "user", "content": "call roll_dice with 6"}]
    return client, list(client.agents.messages.create(agent.id, messages=say, streaming=True, background=True))


def numbers(chunks: list[Any]) -> list[int]:
    return [chunk.seq_id for chunk in chunks if getattr(chunk, "seq_id", None) is not None]


def test_a_resumed_stream_begins_after_its_cursor(streamed: tuple[Any, list[Any]]) -> None:
    client, whole = streamed
    run_id = whole[0].run_id
    for cursor in range(1, max(numbers(whole))):
        resumed = list(client.runs.messages.stream(run_id, starting_after=cursor))
        assert numbers(resumed) == [number for number in numbers(whole) if number > cursor]
        assert [chunk.message_type for chunk in resumed].count("ping") == 0


def test_a_stream_that_is_read_from_its_beginning_opens_with_the_stored_ping(streamed: tuple[Any, list[Any]]) -> None:
    client, whole = streamed
    again = list(client.runs.messages.stream(whole[0].run_id, starting_after=0))
    assert (again[0].message_type, again[0].seq_id) == ("ping", 1)
    assert [chunk.message_type for chunk in again] == [chunk.message_type for chunk in whole]
