"""What the routes reach: the engine and the records, as `app.py` joined them."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.ports.model import ModelDirectory


@dataclass(frozen=True, slots=True)
class Rooms:
    models: ModelDirectory
