"""Base tools of the Letta API that this server lists but does not run, each with the reason.

They are listed because clients name them when they create agents; a call is answered with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class UnavailableTool:
    """`does` is what the tool is for, `reason` why it cannot do that here."""

    name: str
    tool_type: str
    does: str
    reason: str
    properties: Mapping[str, Any]
    required: tuple[str, ...]


_AGENTS = "Not on this server yet: its agents cannot send messages to each other."
_FILES = "Not on this server yet: its agents have no folders and files."
_VOICE = "Not on this server: it has no voice agents."

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_NUMBER = {"type": "integer"}
_OBJECTS = {"type": "array", "items": {"type": "object"}}


def _of(
    kind: str, name: str, does: str, reason: str, properties: Mapping[str, Any], *required: str
) -> tuple[str, UnavailableTool]:
    return name, UnavailableTool(name, kind, does, reason, properties, required)


_MESSAGE = {"message": _TEXT, "other_agent_id": _TEXT}

UNAVAILABLE: Mapping[str, UnavailableTool] = dict(
    (
        _of(
            "letta_multi_agent_core",
            "send_message_to_agent_and_wait_for_reply",
            "Send a message to another agent and wait for its reply.",
            _AGENTS,
            _MESSAGE,
            "message",
            "other_agent_id",
        ),
        _of(
            "letta_multi_agent_core",
            "send_message_to_agents_matching_tags",
            "Send a message to all agents with certain tags.",
            _AGENTS,
            {"message": _TEXT, "match_all": _TEXTS, "match_some": _TEXTS},
            "message",
            "match_all",
            "match_some",
        ),
        _of(
            "letta_multi_agent_core",
            "send_message_to_agent_async",
            "Send a message to another agent without waiting for its reply.",
            _AGENTS,
            _MESSAGE,
            "message",
            "other_agent_id",
        ),
        _of(
            "letta_voice_sleeptime_core",
            "store_memories",
            "Keep parts of a conversation.",
            _VOICE,
            {"chunks": _OBJECTS},
            "chunks",
        ),
        _of(
            "letta_voice_sleeptime_core",
            "rethink_user_memory",
            "Rewrite what is known about the user.",
            _VOICE,
            {"new_memory": _TEXT},
            "new_memory",
        ),
        _of("letta_voice_sleeptime_core", "finish_rethinking_memory", "Say that the memory is finished.", _VOICE, {}),
        _of(
            "letta_voice_sleeptime_core",
            "search_memory",
            "Search the conversation and what was kept of it.",
            _VOICE,
            {"convo_keyword_queries": _TEXTS, "start_minutes_ago": _NUMBER, "end_minutes_ago": _NUMBER},
        ),
        _of(
            "letta_builtin",
            "run_code_with_tools",
            "Run a Python program that calls other tools.",
            "Not on this server: a program in the sandbox cannot reach the agent's tools. Use run_code, and call the "
            "tools directly.",
            {"code": _TEXT},
            "code",
        ),
        _of(
            "letta_files_core",
            "open_files",
            "Open files of the attached folders.",
            _FILES,
            {"file_requests": _OBJECTS, "close_all_others": {"type": "boolean"}},
            "file_requests",
        ),
        _of(
            "letta_files_core",
            "grep_files",
            "Search the attached files by a regular expression.",
            _FILES,
            {"pattern": _TEXT, "include": _TEXT, "context_lines": _NUMBER, "offset": _NUMBER},
            "pattern",
        ),
        _of(
            "letta_files_core",
            "semantic_search_files",
            "Search the attached files by meaning.",
            _FILES,
            {"query": _TEXT, "limit": _NUMBER},
            "query",
        ),
    )
)
