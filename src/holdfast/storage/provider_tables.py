"""The tables of providers that organisations bring: the record, and what each was found to offer.

A part of `storage.tables`, which is where other files import them from.
"""

from __future__ import annotations

from sqlalchemy import Column, String, Table, Text, UniqueConstraint

from holdfast.storage.columns import Document, Moment, id_column, metadata, org_column, owned_by, stamp_columns

providers = Table(
    "providers",
    metadata,
    id_column(),
    org_column(),
    Column("name", String, nullable=False),
    Column("provider_type", String, nullable=False),
    Column("base_url", Text),
    Column("sealed", Text),
    Column("refreshed_at", Moment),
    Column("document", Document, nullable=False),
    *stamp_columns(),
    UniqueConstraint("org_id", "name"),
)

# One row per model, so that finding one on the way to a call reads one row and not the whole listing.
provider_models = Table(
    "provider_models",
    metadata,
    owned_by("providers", "provider_id", primary_key=True),
    Column("name", String, primary_key=True),
    Column("document", Document, nullable=False),
)
