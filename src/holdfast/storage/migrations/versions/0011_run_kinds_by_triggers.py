"""Numbers the combinations of filtered columns ("kinds") of runs, by triggers. Eight indexes go, four narrow ones come.

Triggers set the number, and not our own code, because a process of the version before writes runs too and does not know
kinds. While the indexes are built and existing runs are numbered, `runs` cannot be written. 0013 removes all of this.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# The columns of a kind, each with its expression over a run. NULL becomes a value, so that kinds can be compared.
TRAITS = (
    ("org_id", "{run}.org_id"),
    ("status", "{run}.status"),
    ("stop_reason", "coalesce({run}.stop_reason, '')"),
    ("background", "{run}.background"),
    ("in_default_conversation", "{run}.in_default_conversation"),
    ("rested_after_steps", "CASE WHEN {run}.completed_at IS NULL THEN -1 ELSE {run}.num_steps END"),
    ("project_id", "coalesce({run}.project_id, '')"),
    ("base_template_id", "coalesce({run}.base_template_id, '')"),
)
NAMES = ", ".join(name for name, _ in TRAITS)
WATCHED = (
    "status, stop_reason, background, in_default_conversation, completed_at, num_steps, project_id, base_template_id"
)

NARROW = (
    ("ix_runs_org_created", ("org_id", "created_at", "id"), None),
    ("ix_runs_agent_created", ("agent_id", "created_at", "id"), None),
    ("ix_runs_conversation_created", ("conversation_id", "created_at", "id"), None),
    ("ix_runs_agent_duration", ("agent_id", "total_duration_ns", "id", "created_at"), "total_duration_ns IS NOT NULL"),
)
FILTERED = (
    "stop_reason", "background", "in_default_conversation", "num_steps", "completed_at", "total_duration_ns",
    "project_id", "base_template_id",
)  # fmt: skip
OF_THE_DRAW = (
    "org_id", "total_duration_ns", "id", "created_at", "agent_id", "conversation_id", "status", "stop_reason",
    "background", "in_default_conversation", "num_steps", "completed_at", "project_id", "base_template_id",
)  # fmt: skip
DRAWN = "id < 'run-04' AND total_duration_ns IS NOT NULL"
LOOKED_AT = "id < 'run-01' AND total_duration_ns IS NOT NULL"
BEFORE: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    *NARROW,
    ("ix_runs_org_status_wide", ("org_id", "status", "created_at", "id", *FILTERED), None),
    ("ix_runs_agent_status_wide", ("agent_id", "status", "created_at", "id", "conversation_id", *FILTERED), None),
    ("ix_runs_org_background_created", ("org_id", "background", "created_at", "id"), None),
    ("ix_runs_org_default_created", ("org_id", "in_default_conversation", "created_at", "id"), None),
    *(
        (
            f"ix_runs_org_{name}_wide",
            ("org_id", column, "created_at", "id", "status", *(other for other in FILTERED if other != column)),
            condition,
        )
        for name, column, condition in (
            ("stop", "stop_reason", "stop_reason <> 'end_turn'"),
            ("project", "project_id", "project_id IS NOT NULL"),
            ("template", "base_template_id", "base_template_id IS NOT NULL"),
        )
    ),
    ("ix_runs_org_steps_created", ("org_id", "num_steps", "created_at", "id"), "completed_at IS NOT NULL"),
    (
        "ix_runs_org_duration",
        ("org_id", "total_duration_ns", "id", "created_at", "status", *FILTERED[:5]),
        "total_duration_ns IS NOT NULL",
    ),
    ("ix_runs_org_drawn", OF_THE_DRAW, DRAWN),
    ("ix_runs_org_looked_at", OF_THE_DRAW, LOOKED_AT),
)
BY_TIME, BY_DURATION = (
    ("created_at", "id", "kind", "total_duration_ns"),
    ("total_duration_ns", "id", "created_at", "kind"),
)
TOOK_TIME = "total_duration_ns IS NOT NULL"
AFTER: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    ("ix_runs_org_created", ("org_id", *BY_TIME), None),
    ("ix_runs_agent_created", ("agent_id", *BY_TIME), None),
    ("ix_runs_conversation_created", ("conversation_id", *BY_TIME), None),
    ("ix_runs_kind_created", ("kind", "created_at", "id", "total_duration_ns"), None),
    ("ix_runs_agent_kind_created", ("agent_id", "kind", "created_at", "id", "total_duration_ns"), None),
    ("ix_runs_org_duration", ("org_id", *BY_DURATION), TOOK_TIME),
    ("ix_runs_agent_duration", ("agent_id", *BY_DURATION), TOOK_TIME),
    ("ix_runs_kind_duration", ("kind", "total_duration_ns", "id", "created_at"), TOOK_TIME),
    ("ix_runs_org_drawn", ("org_id", *BY_DURATION, "agent_id", "conversation_id"), DRAWN),
    ("ix_runs_org_looked_at", ("org_id", *BY_DURATION, "agent_id", "conversation_id"), LOOKED_AT),
)


def upgrade() -> None:
    op.create_table(
        "run_kinds",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("org_id", sa.String, sa.ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("stop_reason", sa.String, nullable=False),
        sa.Column("background", sa.Boolean, nullable=False),
        sa.Column("in_default_conversation", sa.Boolean, nullable=False),
        sa.Column("rested_after_steps", sa.Integer, nullable=False),
        sa.Column("project_id", sa.String, nullable=False),
        sa.Column("base_template_id", sa.String, nullable=False),
    )
    op.create_index("uq_run_kinds", "run_kinds", [name for name, _ in TRAITS], unique=True)
    _drop(BEFORE)
    op.add_column("runs", sa.Column("kind", sa.Integer))
    op.execute(f"INSERT INTO run_kinds ({NAMES}) SELECT DISTINCT {_values('runs')} FROM runs")
    op.execute(f"UPDATE runs SET kind = ({_the_kind_of('runs')})")
    _create(AFTER)
    if op.get_context().dialect.name == "postgresql":
        _watch_on_postgres()
    else:
        _watch_on_sqlite()


def downgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP TRIGGER runs_have_a_kind ON runs")
        op.execute("DROP FUNCTION kind_of_a_run")
    else:
        op.execute("DROP TRIGGER runs_get_a_kind")
        op.execute("DROP TRIGGER runs_change_their_kind")
    _drop(AFTER)
    op.drop_column("runs", "kind")
    _create(BEFORE)
    op.drop_table("run_kinds")


def _watch_on_postgres() -> None:
    """If two transactions insert the same new kind at once, the second waits for the first and then reads its row."""
    op.execute(f"""
        CREATE FUNCTION kind_of_a_run() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            SELECT ({_the_kind_of("NEW")}) INTO NEW.kind;
            IF NEW.kind IS NULL THEN
                INSERT INTO run_kinds ({NAMES}) VALUES ({_values("NEW")}) ON CONFLICT DO NOTHING;
                SELECT ({_the_kind_of("NEW")}) INTO NEW.kind;
            END IF;
            RETURN NEW;
        END $$
    """)
    op.execute(
        f"CREATE TRIGGER runs_have_a_kind BEFORE INSERT OR UPDATE OF {WATCHED} ON runs "
        "FOR EACH ROW EXECUTE FUNCTION kind_of_a_run()"
    )


def _watch_on_sqlite() -> None:
    new, old = ({name: value.format(run=run) for name, value in TRAITS} for run in ("NEW", "OLD"))
    changed = " OR ".join(f"{new[name]} <> {old[name]}" for name, _ in TRAITS)
    number_it = f"""
        INSERT INTO run_kinds ({NAMES}) SELECT {_values("NEW")} WHERE ({_the_kind_of("NEW")}) IS NULL;
        UPDATE runs SET kind = ({_the_kind_of("NEW")}) WHERE id = NEW.id;
    """
    op.execute(f"CREATE TRIGGER runs_get_a_kind AFTER INSERT ON runs BEGIN {number_it} END")
    op.execute(
        f"CREATE TRIGGER runs_change_their_kind AFTER UPDATE OF {WATCHED} ON runs WHEN {changed} BEGIN {number_it} END"
    )


def _values(run: str) -> str:
    return ", ".join(value.format(run=run) for _, value in TRAITS)


def _the_kind_of(run: str) -> str:
    same = " AND ".join(f"k.{name} = {value.format(run=run)}" for name, value in TRAITS)
    return f"SELECT k.id FROM run_kinds k WHERE {same}"


def _create(indexes: tuple[tuple[str, tuple[str, ...], str | None], ...]) -> None:
    for name, columns, condition in indexes:
        where: dict[str, Any] = {}
        if condition is not None:
            where = {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}
        op.create_index(name, "runs", list(columns), **where)


def _drop(indexes: tuple[tuple[str, tuple[str, ...], str | None], ...]) -> None:
    for name, _, _ in indexes:
        op.drop_index(name, "runs")
