"""Into a tool's process: its arguments as its signature asks for them, and its agent as it may see it.

Called by `child`. Conversion is by the function's own annotations (models, dataclasses, enums, dates), since the source
has been executed there. Standard library only: a model class is known by its `model_validate`, so pydantic is never
imported here.

It never guesses: a value that fits no rule is passed as it came.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union

_FROM_TEXT: dict[Any, Callable[[str], Any]] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
}


class AgentState(dict[str, Any]):
    """The agent as the tool may see it: a dict whose keys can be read as attributes too."""

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
    """The agent's memory blocks, label to text. What a tool sets here is asked of the server when it has returned."""

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def get_block(self, label: str) -> Block:
        return Block(self, label)

    def update_block_value(self, label: str, value: str) -> None:
        self[label] = value

    def list_block_labels(self) -> list[str]:
        return list(self)


class Block(AgentState):
    """One memory block. Its value can be set, as an attribute or an item; that sets it in the memory it is from."""

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
    """What a tool is given as `agent_state`."""
    view = agent_view(state)
    if isinstance(view, AgentState) and isinstance(view.get("memory"), dict):
        view["memory"] = Memory(view["memory"])
    return view


def memory_changes(state: Any, view: Any) -> dict[str, Any]:
    """Which blocks the tool has set to something else, by label; one that it took away is None, for the server to
    refuse."""
    before = state.get("memory") if isinstance(state, dict) else None
    if not isinstance(before, dict):
        return {}
    after = view.get("memory")
    if not isinstance(after, dict):
        raise TypeError("agent_state.memory was set to something that is no dict of labels and texts")
    set_anew = {label: text for label, text in after.items() if label not in before or before[label] != text}
    return {**set_anew, **{label: None for label in before if label not in after}}


def agent_view(value: Any) -> Any:
    if isinstance(value, dict):
        return AgentState({key: agent_view(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return [agent_view(inner) for inner in value]
    return value


# ---- arguments in ---------------------------------------------------------------------------------------


def bind(function: Callable[..., Any], arguments: Mapping[str, Any], view: Any) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named arguments for the call. Names that the function does not know are left to fail there."""
    parameters = inspect.signature(function).parameters
    hints = _hints(function)
    values = {name: converted(value, hints.get(name, Any)) for name, value in arguments.items()}
    for name, value in {"agent_state": view, "self": None, "request_heartbeat": False}.items():
        needed = name in parameters and parameters[name].default is inspect.Parameter.empty
        if name == "agent_state" and name in parameters:
            values[name] = value
        elif needed:
            values.setdefault(name, value)
    first = [name for name, one in parameters.items() if one.kind is inspect.Parameter.POSITIONAL_ONLY]
    return [values.pop(name) for name in first if name in values], values


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations, resolved where they can be; one that cannot must not stop the call."""
    try:
        return typing.get_type_hints(function, localns=vars(typing), include_extras=True)
    except Exception:
        return dict(getattr(function, "__annotations__", {}))


def converted(value: Any, hint: Any) -> Any:
    """The value as the annotation wants it."""
    if hint is Any:  # a class since Python 3.11, but not one that anything is an instance of
        return value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return converted(value, inner[0])
    if origin in (Union, types.UnionType):
        return _first_that_fits(value, inner)
    if isinstance(hint, type) and origin is None:
        return _made(value, hint)
    if isinstance(value, list) and origin in (list, set, frozenset, tuple):
        return _collection(value, origin, inner)
    if isinstance(value, dict) and origin is dict and len(inner) == 2:
        return {key: converted(item, inner[1]) for key, item in value.items()}
    return value


def _collection(value: list[Any], origin: Any, inner: tuple[Any, ...]) -> Any:
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        return tuple(converted(item, hint) for item, hint in zip(value, inner, strict=False))
    return origin(converted(item, inner[0] if inner else Any) for item in value)


def _first_that_fits(value: Any, options: tuple[Any, ...]) -> Any:
    if value is None:
        return None
    for option in options:
        wanted = typing.get_origin(option) or option
        try:
            candidate = converted(value, option)
            if wanted is Any or isinstance(candidate, wanted):
                return candidate
        except Exception:
            continue
    return value


def _made(value: Any, kind: type) -> Any:
    """An instance of a class that the source (or the standard library) defines, from its JSON form."""
    if typing.is_typeddict(kind) or isinstance(value, kind):
        return value
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if issubclass(kind, enum.Enum):
        return kind(value)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = _hints(kind)
        return kind(**{name: converted(item, hints.get(name, Any)) for name, item in value.items()})
    if kind in _FROM_TEXT and isinstance(value, str):
        return _FROM_TEXT[kind](value)
    if kind is float and type(value) is int:
        return float(value)
    if kind in (tuple, set, frozenset) and isinstance(value, list):
        return kind(value)
    return value
