"""Read which fields a client sent to create or change a record.

What a client sends is a frozen dataclass of `records` (`NewBlock`, `BlockPatch`, …). Its fields have the names of the
API, and None where the client sent nothing or null: the API gives null no meaning of its own. `api` subclasses the
dataclasses to add the limits that pydantic checks, and hands the values inward as they are.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def sent_fields(values: object, of: type[Any]) -> dict[str, Any]:
    """The fields that the class `of` has and the client sent, by name. Lists become tuples, as records have them."""
    sent = {field.name: getattr(values, field.name) for field in fields(of)}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in sent.items() if v is not None}
