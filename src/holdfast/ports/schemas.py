"""The promise of whoever reads a tool's JSON schema out of its source. By reading only: nothing is executed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class SchemaReader(Protocol):
    """Both give `{"name", "description", "parameters"}`, and raise `Invalid` on a source or schema that has none."""

    def from_source(self, source: str, *, name: str | None, description: str | None) -> dict[str, Any]:
        """The schema of the function called `name`, else of the last one at the top of the source."""
        ...

    def from_args(self, name: str, description: str, args_json_schema: Mapping[str, Any]) -> dict[str, Any]:
        """The same from the JSON schema of the arguments."""
        ...
