"""Alembic's entry point: runs the migrations on the connection of `storage.schema.migrate`, in its transaction."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy import JSON

from holdfast.storage.schema.columns import Moment
from holdfast.storage.schema.migrate import VERSION_TABLE
from holdfast.storage.schema.record_tables import metadata


def _render_type(kind: str, item: Any, _autogen: Any) -> str | Literal[False]:
    """Make generated migrations refer to our column types by name instead of spelling out their implementation."""
    if kind == "type" and isinstance(item, Moment):
        return "columns.Moment()"
    if kind == "type" and isinstance(item, JSON):
        return "columns.Document"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    render_item=_render_type,
    compare_type=True,
    version_table=VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
