"""Convert a tool call's JSON arguments to the types in the function's signature.

Called by `run_job`. Conversion follows the function's own annotations, which exist because the source was already
executed, and yields what the schema read from the same source promises (`schema.annotations`, `schema.classes`):
models, dataclasses, typed dicts and named tuples, also inside lists and dicts; enums, dates, UUIDs, paths and
decimals; dict keys that are not strings.

Few modules are imported, because every fork pays for what is loaded: a model class is recognised by its
`model_validate`, a UUID by the name of its class. Nothing is guessed: a value that no rule fits is passed unchanged.
"""

from __future__ import annotations

import collections
import collections.abc
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
_CONSTRUCTED_FROM_TEXT = frozenset({"uuid.UUID", "pathlib.Path", "pathlib._local.Path", "decimal.Decimal"})
_WRAPPERS = (Annotated, typing.Required, typing.NotRequired, typing.Final)
_LISTS: dict[Any, Callable[..., Any]] = {
    list: list,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    tuple: tuple,
    set: set,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    frozenset: frozenset,
}
_DICTS = frozenset(
    {
        dict,
        collections.abc.Mapping,
        collections.abc.MutableMapping,
        collections.OrderedDict,
        collections.defaultdict,
    }
)


def bind(function: Callable[..., Any], arguments: Mapping[str, Any], view: Any) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments for the call. Unknown names are passed on, and the call then fails on them."""
    parameters = inspect.signature(function).parameters
    hints = _hints(function)
    values = {name: convert(value, hints.get(name, Any)) for name, value in arguments.items()}
    for name, value in {"agent_state": view, "self": None, "request_heartbeat": False}.items():
        needed = name in parameters and parameters[name].default is inspect.Parameter.empty
        if name == "agent_state" and name in parameters:
            values[name] = value
        elif needed:
            values.setdefault(name, value)
    return _take_positional(parameters, values), values


def _take_positional(parameters: Mapping[str, inspect.Parameter], values: dict[str, Any]) -> list[Any]:
    """Remove the positional-only arguments from `values` and return them in order.

    A parameter before a given one must be filled too, by its default if need be; otherwise later values would shift
    into its position.
    """
    names = [name for name, one in parameters.items() if one.kind is inspect.Parameter.POSITIONAL_ONLY]
    while names and names[-1] not in values:
        names.pop()
    for name in names:
        if name not in values and parameters[name].default is inspect.Parameter.empty:
            raise TypeError(f"missing the argument {name!r}")
    return [values.pop(name) if name in values else parameters[name].default for name in names]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The resolved annotations; unresolved ones if that fails, because a bad annotation must not fail the call."""
    try:
        return typing.get_type_hints(function, localns=vars(typing), include_extras=True)
    except Exception:
        return dict(getattr(function, "__annotations__", {}))


def convert(value: Any, hint: Any) -> Any:
    """The value converted to the annotated type."""
    if hint is Any:  # a class since Python 3.11, but isinstance() does not accept it
        return value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in _WRAPPERS:
        return convert(value, inner[0])
    if origin in (Union, types.UnionType):
        return _convert_union(value, inner)
    kind = origin or hint
    if not isinstance(kind, type):
        return value
    if isinstance(value, list) and kind in _LISTS:
        return _convert_list(value, kind, inner)
    if isinstance(value, dict) and kind in _DICTS:
        return _convert_dict(value, kind, inner if len(inner) == 2 else (Any, Any))
    return _construct(value, hint) if origin is None else value


def _convert_list(value: list[Any], kind: Any, inner: tuple[Any, ...]) -> Any:
    if kind is tuple and inner and inner[-1] is not Ellipsis:
        return tuple(convert(item, hint) for item, hint in zip(value, inner, strict=False))
    return _LISTS[kind](convert(item, inner[0] if inner else Any) for item in value)


def _convert_dict(value: dict[str, Any], kind: Any, inner: tuple[Any, ...]) -> Any:
    of_key, of_item = inner
    items = {_convert_key(key, of_key): convert(item, of_item) for key, item in value.items()}
    if kind is collections.defaultdict:
        factory = typing.get_origin(of_item) or of_item
        return collections.defaultdict(factory if isinstance(factory, type) and factory is not Any else None, items)
    return collections.OrderedDict(items) if kind is collections.OrderedDict else items


def _convert_key(key: str, hint: Any) -> Any:
    """JSON keys are always strings, so numeric keys are parsed here."""
    return hint(key) if hint is int or hint is float else convert(key, hint)


def _convert_union(value: Any, options: tuple[Any, ...]) -> Any:
    if value is None:
        return None
    for option in options:
        wanted = dict if typing.is_typeddict(option) else typing.get_origin(option) or option
        try:
            candidate = convert(value, option)
            if wanted is Any or isinstance(candidate, wanted):
                return candidate
        except Exception:
            continue
    return value


def _construct(value: Any, kind: type) -> Any:
    """An instance of a class that the source or the standard library defines, from its JSON form."""
    if typing.is_typeddict(kind):
        return _convert_fields(value, kind) if isinstance(value, dict) else value
    if isinstance(value, kind):
        return value
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    if issubclass(kind, enum.Enum):
        return kind(value)
    if isinstance(value, dict) and (dataclasses.is_dataclass(kind) or _is_named_tuple(kind)):
        return kind(**_convert_fields(value, kind))
    if kind in _FROM_TEXT and isinstance(value, str):
        return _FROM_TEXT[kind](value)
    if f"{kind.__module__}.{kind.__qualname__}" in _CONSTRUCTED_FROM_TEXT and not isinstance(value, dict | list | bool):
        return kind(str(value))  # type: ignore[call-arg]
    if kind is float and type(value) is int:
        return float(value)
    return value


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _convert_fields(value: dict[str, Any], kind: Any) -> dict[str, Any]:
    hints = _hints(kind)
    return {name: convert(item, hints.get(name, Any)) for name, item in value.items()}
