"""The interface of the schema reader, which derives a tool's JSON schema from its source code without executing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class SchemaReader(Protocol):
    """Schemas are `{"name", "description", "parameters"}`. All methods raise `Invalid` if the input yields none.

    Parsing a source can take seconds of CPU time, so callers use a thread."""

    def from_source(self, source: str, *, name: str | None, description: str | None) -> dict[str, Any]:
        """The schema of the function `name`; without a name, of the last top-level function."""
        ...

    def function_in(self, source: str) -> tuple[str, str | None]:
        """The name and docstring of the last top-level function."""
        ...

    def from_args(self, name: str, description: str, args_json_schema: Mapping[str, Any]) -> dict[str, Any]:
        """The schema of a tool whose arguments are given as a JSON schema."""
        ...
