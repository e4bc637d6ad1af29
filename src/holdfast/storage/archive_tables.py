"""The tables of long-term memory: archives, their passages, and which agents use which archive.

A part of `storage.tables`, which is where other files import them from.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, String, Table, Text

from holdfast.storage.columns import Document, id_column, metadata, org_column, owned_by, stamp_columns

archives = Table(
    "archives",
    metadata,
    id_column(),
    org_column(),
    Column("name", String, nullable=False),
    Column("document", Document, nullable=False),
    *stamp_columns(),
    Index("ix_archives_org_created", "org_id", "created_at", "id"),
)

agent_archives = Table(
    "agent_archives",
    metadata,
    owned_by("agents", "agent_id", primary_key=True),
    owned_by("archives", "archive_id", primary_key=True),
    Column("position", Integer, nullable=False),
    Index("ix_agent_archives_archive", "archive_id"),
)

passages = Table(
    "passages",
    metadata,
    id_column(),
    org_column(),
    owned_by("archives", "archive_id"),
    Column("text", Text, nullable=False),
    Column("document", Document, nullable=False),
    *stamp_columns(),
    Index("ix_passages_archive_created", "archive_id", "created_at", "id"),
)
