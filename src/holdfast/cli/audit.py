"""`holdfast audit`: check that nobody has changed or removed a decision from the audit log."""

from __future__ import annotations

import sys

from sqlalchemy.exc import SQLAlchemyError

from holdfast.settings import Settings
from holdfast.storage.audit import verify
from holdfast.storage.database import make_engine


def audit(settings: Settings) -> int:
    """0 if the chain holds, 1 if it is broken, 2 if it could not be read."""
    engine = make_engine(settings.database_url)
    try:
        with engine.connect() as connection:
            found = verify(connection)
    except SQLAlchemyError as error:
        print(f"holdfast: the audit log could not be read: {error}", file=sys.stderr)
        return 2
    finally:
        engine.dispose()
    if found.broken_at is not None:
        print(f"BROKEN at decision {found.broken_at}: it, or one before it, was changed or removed.")
        return 1
    print(f"The audit log holds: {found.checked} decisions, every one bound to the one before it.")
    return 0
