"""The `agent_state` object that a tool receives: readable by key or attribute, with memory blocks that can be set.

`run_job` creates it and afterwards asks which blocks changed. Nothing is written here: the server decides about the
changes when the tool has returned.
"""

from __future__ import annotations

from typing import Any


class AgentState(dict[str, Any]):
    """The agent's data as a dict whose keys can also be read as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"agent_state has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "memory":
            raise AttributeError(f"{name!r} cannot be changed by a tool: of agent_state only memory is written back")
        self[name] = value


class Memory(AgentState):
    """The agent's memory blocks, label to text. Changes are sent to the server when the tool has returned."""

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def get_block(self, label: str) -> Block:
        return Block(self, label)

    def update_block_value(self, label: str, value: str) -> None:
        self[label] = value

    def list_block_labels(self) -> list[str]:
        return list(self)


class Block(AgentState):
    """One memory block. Setting its value, as an attribute or an item, sets it in the `Memory` that it came from."""

    def __init__(self, memory: Memory, label: str) -> None:
        super().__init__(label=label, value=memory[label])
        object.__setattr__(self, "_memory", memory)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name != "value":
            raise AttributeError(f"{name!r} of a memory block cannot be changed by a tool, only its value")
        super().__setitem__(name, value)
        self._memory[self["label"]] = value


def state_view(state: Any) -> Any:
    """The object that a tool receives as `agent_state`."""
    view = agent_view(state)
    if isinstance(view, AgentState) and isinstance(view.get("memory"), dict):
        view["memory"] = Memory(view["memory"])
    return view


def memory_changes(state: Any, view: Any) -> dict[str, Any]:
    """The blocks that the tool changed, by label; a removed block is None, and the server refuses it."""
    before = state.get("memory") if isinstance(state, dict) else None
    if not isinstance(before, dict):
        return {}
    after = view.get("memory")
    if not isinstance(after, dict):
        raise TypeError("agent_state.memory was set to something that is no dict of labels and texts")
    changed = {label: text for label, text in after.items() if label not in before or before[label] != text}
    return {**changed, **{label: None for label in before if label not in after}}


def agent_view(value: Any) -> Any:
    if isinstance(value, dict):
        return AgentState({key: agent_view(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return [agent_view(inner) for inner in value]
    return value
