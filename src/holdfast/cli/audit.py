"""`holdfast audit`: checks that no decision in the audit log was changed or removed."""

from __future__ import annotations

from holdfast.cli.failures import DATABASE_ERRORS, database_error_text, fail
from holdfast.settings import Settings
from holdfast.storage.runs.audit_check import Expected, Verified, verify
from holdfast.storage.sql.database import make_engine


def audit(settings: Settings, head: str | None = None, count: int | None = None) -> int:
    """0 if the log is intact, 1 if not, 2 if it could not be read. `head` and `count` are from an earlier call."""
    expected = Expected(head.strip().lower() if head else None, count)
    engine = make_engine(settings.database_url)
    try:
        with engine.connect() as connection:
            found = verify(connection, expected)
    except DATABASE_ERRORS as error:
        return fail(f"the audit log could not be read: {database_error_text(settings, error)}", 2)
    finally:
        engine.dispose()
    for line in _report(found, expected):
        print(line)
    return 0 if found.holds else 1


def _report(found: Verified, expected: Expected) -> list[str]:
    lines: list[str] = []
    if found.broken_at is not None:
        lines.append(f"BROKEN at decision {found.broken_at}: it, or one before it, was changed or removed.")
    if not found.expected:
        lines.append(f"BROKEN: {_missing(expected)}: decisions were changed or removed since it was written down.")
    if found.mismatched:
        lines.append(f"BROKEN: the ledger has {found.mismatched} decided calls that the log does not agree with.")
        lines += [f"  {one.step_id} {one.call_id}: {one.problem}" for one in found.mismatches]
    if found.holds:
        lines.append(
            f"The audit log holds: {found.checked} decisions, every one bound to the one before it, and every decided "
            "call in the ledger agrees."
        )
    lines.append(f"count {found.checked}, head {found.head}")
    return lines


def _missing(expected: Expected) -> str:
    if expected.head is None:
        return f"there are no longer {expected.count} decisions"
    if expected.count is None:
        return f"no decision has the hash {expected.head}"
    return f"decision {expected.count} in order does not have the hash {expected.head}"
