"""Copies the columns that runs are listed by to each row of `run_tools`, by triggers, with indexes over them.

Triggers keep the copies, as they keep a run's kind: a process of the version before writes only columns that it
knows. While existing rows are filled, `run_tools` cannot be written. 0013 removes all of this.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

COPIED = (
    ("agent_id", sa.String),
    ("conversation_id", sa.String),
    ("kind", sa.Integer),
    ("total_duration_ns", sa.BigInteger),
)
NAMES = ", ".join(name for name, _ in COPIED)

Indexes = tuple[tuple[str, tuple[str, ...], str | None], ...]
BY_DURATION = ("org_id", "tool", "total_duration_ns", "run_id", "created_at", "kind", "agent_id", "conversation_id")
TOOK_TIME = "total_duration_ns IS NOT NULL"
BEFORE: Indexes = (("ix_run_tools_org_tool_created", ("org_id", "tool", "created_at", "run_id"), None),)
AFTER: Indexes = (
    (
        "ix_run_tools_org_tool_created",
        ("org_id", "tool", "created_at", "run_id", "kind", "total_duration_ns", "agent_id", "conversation_id"),
        None,
    ),
    (
        "ix_run_tools_org_tool_kind_created",
        ("org_id", "tool", "kind", "created_at", "run_id", "total_duration_ns", "agent_id", "conversation_id"),
        None,
    ),
    ("ix_run_tools_org_tool_duration", BY_DURATION, TOOK_TIME),
    ("ix_run_tools_drawn", BY_DURATION, f"run_id < 'run-04' AND {TOOK_TIME}"),
    (
        "ix_run_tools_agent_tool_created",
        ("agent_id", "tool", "created_at", "run_id", "kind", "total_duration_ns", "conversation_id"),
        None,
    ),
)


def upgrade() -> None:
    _drop(BEFORE)
    for name, kind in COPIED:
        op.add_column("run_tools", sa.Column(name, kind))
    op.execute(f"UPDATE run_tools SET ({NAMES}) = (SELECT {NAMES} FROM runs WHERE runs.id = run_tools.run_id)")
    _create(AFTER)
    if op.get_context().dialect.name == "postgresql":
        _follow_on_postgres()
    else:
        _follow_on_sqlite()


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP TRIGGER runs_tell_their_tools ON runs")
        op.execute("DROP TRIGGER run_tools_know_their_run ON run_tools")
        op.execute("DROP FUNCTION tell_the_tools_of_a_run")
        op.execute("DROP FUNCTION run_of_a_tool")
    else:
        op.execute("DROP TRIGGER runs_tell_their_tools")
        op.execute("DROP TRIGGER run_tools_know_their_run")
    _drop(AFTER)
    for name, _ in COPIED:
        op.drop_column("run_tools", name)
    _create(BEFORE)


def _follow_on_postgres() -> None:
    """The insert of a tool waits for a concurrent change of its run, and copies the result. The trigger on `runs` names
    no columns, because it would not fire when another trigger changes the kind."""
    op.execute(f"""
        CREATE FUNCTION run_of_a_tool() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            SELECT {NAMES} INTO {", ".join(f"NEW.{name}" for name, _ in COPIED)}
                FROM runs WHERE id = NEW.run_id FOR SHARE;
            RETURN NEW;
        END $$
    """)
    op.execute(
        "CREATE TRIGGER run_tools_know_their_run BEFORE INSERT ON run_tools "
        "FOR EACH ROW EXECUTE FUNCTION run_of_a_tool()"
    )
    op.execute("""
        CREATE FUNCTION tell_the_tools_of_a_run() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            UPDATE run_tools SET kind = NEW.kind, total_duration_ns = NEW.total_duration_ns WHERE run_id = NEW.id;
            RETURN NULL;
        END $$
    """)
    changed = " OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in ("kind", "total_duration_ns"))
    op.execute(
        f"CREATE TRIGGER runs_tell_their_tools AFTER UPDATE ON runs FOR EACH ROW WHEN ({changed}) "
        "EXECUTE FUNCTION tell_the_tools_of_a_run()"
    )


def _follow_on_sqlite() -> None:
    """The kind is set after the row of the run is written, so the trigger reads the row and not `NEW`."""
    the_run = f"(SELECT {NAMES} FROM runs WHERE id = {{run}})"
    op.execute(f"""
        CREATE TRIGGER run_tools_know_their_run AFTER INSERT ON run_tools BEGIN
            UPDATE run_tools SET ({NAMES}) = {the_run.format(run="NEW.run_id")}
            WHERE run_id = NEW.run_id AND tool = NEW.tool;
        END
    """)
    changed = " OR ".join(f"NEW.{name} IS NOT OLD.{name}" for name in ("kind", "total_duration_ns"))
    op.execute(f"""
        CREATE TRIGGER runs_tell_their_tools AFTER UPDATE OF kind, total_duration_ns ON runs WHEN {changed} BEGIN
            UPDATE run_tools SET ({NAMES}) = {the_run.format(run="NEW.id")} WHERE run_id = NEW.id;
        END
    """)


def _create(indexes: Indexes) -> None:
    for name, columns, condition in indexes:
        where: dict[str, Any] = {}
        if condition is not None:
            where = {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}
        op.create_index(name, "run_tools", list(columns), **where)


def _drop(indexes: Indexes) -> None:
    for name, _, _ in indexes:
        op.drop_index(name, "run_tools")
