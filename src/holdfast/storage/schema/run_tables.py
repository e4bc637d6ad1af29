"""Table definitions of runs and what belongs to them: keys, used tools, steps, traces, events and the webhook outbox.

Other modules import these tables from `storage.schema.record_tables`. Foreign keys with ON DELETE CASCADE delete all of
it together with its run.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, String, Table, Text, text

from holdfast.storage.schema.columns import Document, Moment, id_column, metadata, only_where, org_column, owned_by

TOOK_TIME = "total_duration_ns IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Draw:
    """One run in so many, drawn by its random id, which an index holds. `storage/run_listing/percentile.py` says what
    for."""

    index: str
    run_id: str
    below: str
    one_in: int

    def words(self, of: str = "") -> str:
        """The condition of the index, to the letter."""
        return f"{of}{self.run_id} < '{self.below}' AND {of}{TOOK_TIME}"


DRAWN = Draw("ix_runs_org_drawn", "id", "run-04", 64)
DRAWN_USES = Draw("ix_run_tools_drawn", "run_id", "run-04", 64)
LOOKED_AT = Draw(
    "ix_runs_org_looked_at", "id", "run-01", 256
)  # enough to plan a listing by: `storage/run_listing/query_plan.py`

# What an index of runs goes on with, so that whatever does not match is passed by without a look at the row.
BY_TIME = ("created_at", "id", "kind", "total_duration_ns")
BY_DURATION = ("total_duration_ns", "id", "created_at", "kind")
OF_A_TOOL = ("org_id", "tool", "total_duration_ns", "run_id", "created_at", "kind", "agent_id", "conversation_id")
OF_THE_DRAW = ("org_id", *BY_DURATION, "agent_id", "conversation_id")

# What a run is like: every filter that has but few values. Where a run has none, a kind has '' or, for steps, -1: of
# runs that do not rest, nobody asks how many there were. `storage/run_listing/facets.py` says what for.
run_kinds = Table(
    "run_kinds",
    metadata,
    Column("id", Integer, primary_key=True),
    org_column(),
    Column("status", String, nullable=False),
    Column("stop_reason", String, nullable=False),
    Column("background", Boolean, nullable=False),
    Column("in_default_conversation", Boolean, nullable=False),
    Column("rested_after_steps", Integer, nullable=False),
    Column("project_id", String, nullable=False),
    Column("base_template_id", String, nullable=False),
    Index(
        "uq_run_kinds",
        *("org_id", "status", "stop_reason", "background", "in_default_conversation", "rested_after_steps"),
        *("project_id", "base_template_id"),
        unique=True,
    ),
)

runs = Table(
    "runs",
    metadata,
    id_column(),
    org_column(),
    owned_by("agents", "agent_id"),
    owned_by("conversations", "conversation_id"),
    Column("in_default_conversation", Boolean, nullable=False),
    Column("status", String, nullable=False),
    Column("stop_reason", String),
    Column("turn_id", String, nullable=False),
    Column("background", Boolean, nullable=False),
    Column("queued", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("created_by", String),
    Column("completed_at", Moment),
    Column("lease_owner", String),
    Column("lease_epoch", BigInteger, nullable=False),
    Column("lease_expires_at", Moment),
    Column("cancel_asked_at", Moment),
    Column("cancel_asked_by", String),
    Column("cancel_reason", Text),
    Column("cancel_rollback", Boolean, nullable=False, default=False),
    Column("last_event", BigInteger, nullable=False),
    Column("callback_url", Text),
    Column("callback_sent_at", Moment),
    Column("callback_status_code", Integer),
    Column("callback_error", Text),
    Column("base_template_id", String),
    Column("project_id", String),
    Column("ttft_ns", BigInteger),
    Column("total_duration_ns", BigInteger),
    Column("num_steps", Integer, nullable=False),
    # SQLite reads a row from its start, so columns that can be long come after all columns that listings filter by.
    Column("tools_used", Document, nullable=False),
    Column("metadata", Document, nullable=False),
    Column("request", Document, nullable=False),
    Column("kind", Integer),  # kept by a trigger
    Index("ix_runs_org_created", "org_id", *BY_TIME),
    Index("ix_runs_agent_created", "agent_id", *BY_TIME),
    Index("ix_runs_conversation_created", "conversation_id", *BY_TIME),
    Index("ix_runs_kind_created", "kind", "created_at", "id", "total_duration_ns"),
    Index("ix_runs_agent_kind_created", "agent_id", "kind", "created_at", "id", "total_duration_ns"),
    Index("ix_runs_org_duration", "org_id", *BY_DURATION, **only_where(TOOK_TIME)),
    Index("ix_runs_agent_duration", "agent_id", *BY_DURATION, **only_where(TOOK_TIME)),
    Index("ix_runs_kind_duration", "kind", "total_duration_ns", "id", "created_at", **only_where(TOOK_TIME)),
    # Every column that can be filtered by, so that percentiles are estimated and listings planned in the index alone.
    *(Index(draw.index, *OF_THE_DRAW, **only_where(draw.words())) for draw in (DRAWN, LOOKED_AT)),
    Index("ix_runs_queued", "created_at", sqlite_where=text("queued = 1"), postgresql_where=text("queued")),
    Index(
        "uq_runs_active_conversation",
        "conversation_id",
        unique=True,
        **only_where("status IN ('created', 'running') AND NOT queued"),
    ),
    Index(
        "ix_runs_active_lease",
        "lease_expires_at",
        **only_where("status IN ('created', 'running')"),
    ),
)

# Idempotency keys: a request that is sent again with the same key returns the same run.
run_keys = Table(
    "run_keys",
    metadata,
    owned_by("conversations", "conversation_id", primary_key=True),
    Column("key", String, primary_key=True),
    owned_by("runs", "run_id"),
    Column("body_digest", String, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index("ix_run_keys_run", "run_id"),
    Index("ix_run_keys_created", "created_at"),
)

# The tools that a run has executed: one row for the tool's name and, if it is a stored tool, one for its id.
run_tools = Table(
    "run_tools",
    metadata,
    owned_by("runs", "run_id", primary_key=True),
    Column("tool", String, primary_key=True),
    org_column(),
    Column("created_at", Moment, nullable=False),
    # What else a run is listed by, so that listings by tool need not look at it; kept by triggers.
    Column("agent_id", String),
    Column("conversation_id", String),
    Column("kind", Integer),
    Column("total_duration_ns", BigInteger),
    Index(
        "ix_run_tools_org_tool_created",
        *("org_id", "tool", "created_at", "run_id", "kind", "total_duration_ns", "agent_id", "conversation_id"),
    ),
    Index(
        "ix_run_tools_org_tool_kind_created",
        *("org_id", "tool", "kind", "created_at", "run_id", "total_duration_ns", "agent_id", "conversation_id"),
    ),
    Index("ix_run_tools_org_tool_duration", *OF_A_TOOL, **only_where(TOOK_TIME)),
    Index(DRAWN_USES.index, *OF_A_TOOL, **only_where(DRAWN_USES.words())),
    Index(
        "ix_run_tools_agent_tool_created",
        *("agent_id", "tool", "created_at", "run_id", "kind", "total_duration_ns", "conversation_id"),
    ),
)

steps = Table(
    "steps",
    metadata,
    id_column(),
    org_column(),
    owned_by("runs", "run_id"),
    owned_by("agents", "agent_id"),
    Column("created_at", Moment, nullable=False),
    Column("call_type", String, nullable=False, server_default="agent_step"),
    Column("status", String, nullable=False),
    Column("stop_reason", String),
    Column("model", String),
    Column("model_handle", String),
    Column("provider_name", String),
    Column("provider_id", String),
    Column("model_endpoint", String),
    Column("context_window_limit", Integer),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cached_input_tokens", Integer),
    Column("cache_write_tokens", Integer),
    Column("reasoning_tokens", Integer),
    Column("failed_models", Document),
    Column("error", Document),
    Column("feedback", String),
    Column("tags", Document, nullable=False),
    Column("project_id", String),
    Column("llm_ns", BigInteger),
    Column("tool_ns", BigInteger),
    Column("step_ns", BigInteger),
    Index("ix_steps_org_created", "org_id", "created_at", "id"),
    Index("ix_steps_run_created", "run_id", "created_at", "id"),
    Index("ix_steps_agent_created", "agent_id", "created_at", "id"),
)

# What was sent to a model and what it replied. Deleted after a while; nothing depends on it.
traces = Table(
    "traces",
    metadata,
    id_column(),
    org_column(),
    owned_by("runs", "run_id"),
    Column("step_id", String, nullable=False),
    Column("agent_id", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("call_type", String, nullable=False),
    Column("about", Document, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("ix_traces_step", "step_id"),
    Index("ix_traces_run_created", "run_id", "created_at"),
    Index("ix_traces_created", "created_at"),
)

events = Table(
    "events",
    metadata,
    owned_by("runs", "run_id", primary_key=True),
    Column("first_seq", BigInteger, primary_key=True),
    Column("last_seq", BigInteger, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("body", Text, nullable=False),
    Index("ix_events_created", "created_at"),
)

outbox = Table(
    "outbox",
    metadata,
    id_column(),
    org_column(),
    owned_by("runs", "run_id"),
    Column("url", Text, nullable=False),
    Column("payload", Document, nullable=False),
    Column("last_event", BigInteger, nullable=False),
    Column("status", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("next_attempt_at", Moment, nullable=False),
    Column("leased_until", Moment),
    Column("last_status_code", Integer),
    Column("last_error", Text),
    Index("ix_outbox_due", "next_attempt_at", **only_where("status = 'pending'")),
    Index("ix_outbox_run", "run_id"),
)
