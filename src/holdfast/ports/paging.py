"""A page of a listing, as clients ask for it: cursors are ids, and mean a place in the asked sort order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Order = Literal["asc", "desc"]


@dataclass(frozen=True, slots=True)
class Page:
    """`after` and `before` are relative to the order: after X come the items that follow X in it."""

    limit: int = 50
    order: Order = "desc"
    after: str | None = None
    before: str | None = None
    order_by: str = "created_at"

    @property
    def ascending(self) -> bool:
        return self.order == "asc"
