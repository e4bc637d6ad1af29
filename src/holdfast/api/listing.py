"""What listings share beyond a page: which columns one may sort by."""

from __future__ import annotations

from fastapi.exceptions import RequestValidationError

from holdfast.ports.paging import Page

BY_TIME = ("created_at", "updated_at")


def sorted_by(page: Page, columns: tuple[str, ...] = BY_TIME) -> Page:
    """The page, if it asks for one of these columns; else the request is refused with 422."""
    if page.order_by in columns:
        return page
    said = f"Input should be one of {', '.join(columns)}"
    complaint = {"type": "literal_error", "loc": ("query", "order_by"), "msg": said, "input": page.order_by}
    raise RequestValidationError([complaint])
