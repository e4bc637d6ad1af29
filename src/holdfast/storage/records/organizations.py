"""Creates the default organisation and user, to which everything belongs as long as there are no others."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, insert, select

from holdfast.core.records import Actor
from holdfast.storage.schema.record_tables import organizations, users

DEFAULT_ACTOR = Actor(
    org_id="org-00000000-0000-4000-8000-000000000000", user_id="user-00000000-0000-4000-8000-000000000000"
)


def ensure_default(connection: Connection, now: datetime) -> bool:
    """Insert the default organisation and user; True if they did not exist, that is on the very first start."""
    org_id, user_id = DEFAULT_ACTOR.org_id, DEFAULT_ACTOR.user_id
    if connection.execute(select(organizations.c.id).where(organizations.c.id == org_id)).first() is not None:
        return False
    connection.execute(insert(organizations), {"id": org_id, "name": "default_org", "created_at": now})
    connection.execute(insert(users), {"id": user_id, "org_id": org_id, "name": "default_user", "created_at": now})
    return True
