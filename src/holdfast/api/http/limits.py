"""Limits on request bodies and queries, and the pydantic types that enforce them.

A body is parsed and validated on the event loop, so a limit on its bytes is not enough: 32 MB can be one image, or
sixteen million zeros. Lists stop at their first invalid item (`fail_fast`), because reporting an error costs a hundred
times as much as accepting a value.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import AfterValidator, BeforeValidator, Field

MAX_BODY_VALUES = 20_000  # values of any kind, in lists and objects
MAX_BODY_DEPTH = 100  # objects and lists inside each other
MAX_BODY_TEXT_CHARS = 2_000_000  # all text together, without images: about half a million tokens
MAX_ERRORS_SHOWN = 20  # validation errors in one response
MAX_ERROR_CHARS = 500  # of a validation error, which may quote the request

MAX_MESSAGES = 1_000
MAX_MESSAGE_IDS = 10_000
MAX_PARTS = 1_000  # of a message's content
MAX_ANSWERS = 1_000  # approvals and tool returns in one message
MAX_TOOLS = 1_000
MAX_RULES = 1_000
MAX_NAMES = 1_000  # ids, tags, kinds
MAX_LINES = 10_000  # of a tool's output that a client sends
MAX_ENTRIES = 200  # variables, headers; the value of each variable is searched for in everything that a tool returns
MAX_VARIABLE_NAME_CHARS = 256
MAX_VARIABLE_CHARS = 64 * 1024
MAX_QUERY_CHARS = 10_000  # of a text to search for
MAX_QUERY_WORDS = 200


def at_most(most: int) -> Any:
    """For a list: at most this many items, and only the first invalid one is reported."""
    return Field(max_length=most, fail_fast=True)


def _few_entries(value: Any) -> Any:
    """Count the entries before pydantic validates any of them; `max_length` on an object counts afterwards."""
    if isinstance(value, dict) and len(value) > MAX_ENTRIES:
        raise ValueError(f"an object here may have at most {MAX_ENTRIES} entries")
    return value


def _few_words(value: str) -> str:
    if len(value) > MAX_QUERY_CHARS or len(value.split()) > MAX_QUERY_WORDS:
        raise ValueError(f"search for at most {MAX_QUERY_WORDS} words of {MAX_QUERY_CHARS} characters together")
    return value


FewEntries = BeforeValidator(_few_entries)
Names = Annotated[list[str], at_most(MAX_NAMES)]
Lines = Annotated[list[str], at_most(MAX_LINES)]
QueryNames = Annotated[Names | None, Query()]
SearchText = Annotated[str, AfterValidator(_few_words)]
