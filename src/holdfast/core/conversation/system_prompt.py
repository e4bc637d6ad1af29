"""Builds the system message from the agent's prompt and its memory blocks.

The text changes only when one of them changes, so that vendors' prompt caches stay valid: it contains no time and no
message counts. Blocks are sorted by label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

MEMORY_PLACE = "{CORE_MEMORY}"

DEFAULT_PROMPT = """\
You are a helpful agent with a memory of your own.

Your memory blocks below are always in view. Keep what will matter later in them, with the memory tools you have.
Use your tools when they help; some need a person's approval before they run, and a denial comes with a reason that
you should respect. When you have nothing left to do, answer the user in plain text."""


class MemoryBlock(Protocol):
    """The fields of a memory block that the model sees."""

    @property
    def label(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def description(self) -> str | None: ...
    @property
    def limit(self) -> int: ...
    @property
    def read_only(self) -> bool: ...


def compile_system(prompt: str, blocks: Sequence[MemoryBlock]) -> str:
    """The text of the system message. A prompt may mark the place of the memory with {CORE_MEMORY}."""
    memory = memory_text(blocks)
    if MEMORY_PLACE in prompt:
        return prompt.replace(MEMORY_PLACE, memory)
    return f"{prompt}\n\n{memory}" if memory else prompt


def memory_text(blocks: Sequence[MemoryBlock]) -> str:
    if not blocks:
        return ""
    shown = "\n".join(_block_text(block) for block in sorted(blocks, key=lambda block: block.label))
    return f"<memory_blocks>\n{shown}\n</memory_blocks>"


def _block_text(block: MemoryBlock) -> str:
    about = f"\n<description>{block.description}</description>" if block.description else ""
    size = f"<size>{len(block.value)} of {block.limit} characters{', read only' if block.read_only else ''}</size>"
    return f"<{block.label}>{about}\n{size}\n<value>\n{block.value}\n</value>\n</{block.label}>"
