"""A request is read exactly as it was sent, to the last byte, from what it changed since the requests before it."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.traces.request_changes import Change, Incomplete, difference, fold, split, to_json

VALUES = st.sampled_from(
    [None, True, 1, 1.0, 0, False, "", "text", [], [1], {"a": 1}, {"b": 1, "a": 2}, {"a": 2, "b": 1}]
)
ENTRIES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": VALUES}), VALUES
    ),
    max_size=6,
)
FIELDS = st.one_of(VALUES, ENTRIES)
REQUESTS = st.lists(
    st.dictionaries(st.sampled_from(["model", "messages", "input", "contents", "tools"]), FIELDS), max_size=6
)


def changes_of(requests: Sequence[dict[str, Any]]) -> list[Change]:
    last, changes = None, []
    for request in requests:
        parts = split(request)
        changes.append(difference(last, parts))
        last = parts
    return changes


def folded(changes: Sequence[Change]) -> list[dict[str, Any]]:
    return list(fold((kept, orjson.loads(plain)) for kept, plain in changes))


@given(REQUESTS)
def test_every_request_is_read_as_it_was_sent(requests: list[dict[str, Any]]) -> None:
    assert [to_json(request) for request in folded(changes_of(requests))] == [to_json(one) for one in requests]


@given(ENTRIES, ENTRIES, ENTRIES)
def test_conversations_that_grow_shrink_and_change_are_read_as_they_were_sent(
    common: list[Any], first: list[Any], second: list[Any]
) -> None:
    lists = [common, [*common, *first], [*common, *second], common[:1], [*first, *common]]
    requests = [{"model": "m", "messages": entries, "stream": True} for entries in lists]
    assert [to_json(request) for request in folded(changes_of(requests))] == [to_json(one) for one in requests]


def test_a_turn_costs_what_is_new_in_it() -> None:
    entries = [{"role": "user", "content": f"message {number} of a long conversation"} for number in range(1000)]
    system = [{"role": "system", "content": "You are Ann's friend."}]
    other = [{"role": "system", "content": "You are Bob's friend."}]
    tools = [{"name": "look", "parameters": MappingProxyType({"type": "object"})}]
    first = split({"model": "m", "messages": [*system, *entries[:990]], "tools": tools})
    second = split({"model": "m", "messages": [*system, *entries], "tools": tools})
    third = split({"model": "m", "messages": [*other, *entries], "tools": tools})
    assert difference(first, second) == (990, to_json([{}, entries[990:]]))
    assert difference(second, third) == (1000, to_json([{"messages": other}, []])), "memory was edited"


def test_what_is_missing_is_never_made_up() -> None:
    lists = [[{"role": "user", "content": str(n)} for n in range(count)] for count in (1, 2, 3)]
    changes = changes_of([{"messages": entries} for entries in lists])
    with pytest.raises(Incomplete):
        folded(changes[1:])
    with pytest.raises(Incomplete):
        folded([changes[0], changes[2]])
