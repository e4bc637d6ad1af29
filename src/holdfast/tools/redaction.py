"""Secrets out of what a tool said: wherever the value of one stands, its name stands instead.

Applied to a tool's outputs, its result and what it asks of its agent's memory before they leave the toolbox, so that
logs, the database, streams and the model never hold them. A pure function. It cannot know a secret that the tool has
changed on the way, by a coding of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from holdfast.core.messages import Image, Text
from holdfast.ports.toolbox import MemoryEdit, ToolOutcome

# Shorter values are words like "true" or a city's name, and would tear holes into ordinary text.
SHORTEST = 8


def redacted(outcome: ToolOutcome, secrets: Mapping[str, str]) -> ToolOutcome:
    spellings = _spellings(secrets)
    if not spellings:
        return outcome

    def clean(text: str) -> str:
        for value, name in spellings:
            text = text.replace(value, f"[{name}]")
        return text

    def clean_part(part: Text | Image) -> Text | Image:
        return replace(part, text=clean(part.text)) if isinstance(part, Text) else part

    def clean_edit(edit: MemoryEdit) -> MemoryEdit:
        after = edit.after
        return edit if after is None else replace(edit, after=replace(after, value=clean(after.value)))

    content = outcome.content
    return replace(
        outcome,
        content=clean(content) if isinstance(content, str) else tuple(map(clean_part, content)),
        stdout=tuple(map(clean, outcome.stdout)),
        stderr=tuple(map(clean, outcome.stderr)),
        edits=tuple(map(clean_edit, outcome.edits)),
    )


def _spellings(secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each value as it is, as JSON writes it, and as JSON in JSON; the longest first: one may be part of another."""
    found: dict[str, str] = {}
    for name, value in secrets.items():
        if len(value) >= SHORTEST:
            written = {value, *_in_json(value)}
            found |= dict.fromkeys({*written, *(inner for form in written for inner in _in_json(form))}, name)
    return sorted(found.items(), key=lambda item: -len(item[0]))


def _in_json(text: str) -> set[str]:
    return {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
