"""`holdfast migrate`: bring the database to this version's schema."""

from __future__ import annotations

import sys

from sqlalchemy.exc import SQLAlchemyError

from holdfast.settings import Settings
from holdfast.storage.database import make_engine
from holdfast.storage.migrate import migrate


def migrate_database(settings: Settings) -> int:
    engine = make_engine(settings.database_url)
    try:
        before, now = migrate(engine)
    except SQLAlchemyError as error:
        print(f"holdfast: the database could not be migrated, and was left as it was: {error}", file=sys.stderr)
        return 1
    finally:
        engine.dispose()
    print(f"The database was at {before or 'nothing'} and is at {now}.")
    return 0
