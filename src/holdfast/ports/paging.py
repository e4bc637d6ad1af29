"""`Page`: the paging parameters of a listing. A cursor is the id of a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Order = Literal["asc", "desc"]


@dataclass(frozen=True, slots=True)
class Page:
    """`after` and `before` are relative to `order`: `after=X` selects the records that follow X in that order."""

    limit: int = 50
    order: Order = "desc"
    after: str | None = None
    before: str | None = None
    order_by: str = "created_at"

    @property
    def ascending(self) -> bool:
        return self.order == "asc"
