"""Alembic's entry: run on the connection that `storage.migrate` hands over, in its transaction."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy import JSON

from holdfast.storage.columns import Moment
from holdfast.storage.tables import metadata


def _named(kind: str, item: Any, _autogen: Any) -> str | Literal[False]:
    """New migrations name our column types instead of spelling them out."""
    if kind == "type" and isinstance(item, Moment):
        return "columns.Moment()"
    if kind == "type" and isinstance(item, JSON):
        return "columns.Document"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    render_item=_named,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
