"""Table definitions of runs and what belongs to them: keys, used tools, steps, traces, events and the webhook outbox.

Other modules import these tables from `storage.schema.record_tables`. Foreign keys with ON DELETE CASCADE delete all of
it together with its run.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, String, Table, Text

from holdfast.storage.schema.columns import Document, Moment, id_column, metadata, only_where, org_column, owned_by

# What an index of runs continues with after their owner: outcome, time and id to sort by, then all other columns that a
# listing may filter by. `storage.run_listing` says how they are used.
BY_OUTCOME = (
    *("stop_reason", "background", "created_at", "id"),
    *("total_duration_ns", "num_steps", "in_default_conversation", "project_id", "base_template_id"),
)
BY_DURATION = (
    *("total_duration_ns", "id", "created_at", "stop_reason", "background"),
    *("num_steps", "in_default_conversation", "project_id", "base_template_id"),
)
HAS_DURATION = only_where("total_duration_ns IS NOT NULL")
IS_ACTIVE = "status IN ('created', 'running')"  # `statements.ACTIVE_RUN` repeats it word for word, for SQLite's planner

ONE_ACTIVE_RUN = "uq_runs_active_conversation"

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
    Column("accepted_by", String),
    Column("input_version", BigInteger),
    # SQLite reads a row from its start, so columns that can be long come after all columns that listings filter by.
    Column("tools_used", Document, nullable=False),
    Column("metadata", Document, nullable=False),
    Column("request", Document, nullable=False),
    Index("ix_runs_org_outcome", "org_id", *BY_OUTCOME),
    Index("ix_runs_agent_outcome", "agent_id", *BY_OUTCOME),
    Index("ix_runs_conversation_outcome", "conversation_id", *BY_OUTCOME),
    Index("ix_runs_org_duration", "org_id", *BY_DURATION, **HAS_DURATION),
    Index("ix_runs_agent_duration", "agent_id", *BY_DURATION, **HAS_DURATION),
    # One run at a time works on a conversation.
    Index(ONE_ACTIVE_RUN, "conversation_id", unique=True, **only_where(f"{IS_ACTIVE} AND NOT queued")),
    Index("ix_runs_active_lease", "queued", "lease_expires_at", **only_where(IS_ACTIVE)),
    Index("ix_runs_active_cancel", "lease_owner", **only_where(f"{IS_ACTIVE} AND cancel_asked_at IS NOT NULL")),
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
    Index("ix_run_tools_org_tool", "org_id", "tool", "run_id"),
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
    Index("ix_steps_org_feedback", "org_id", "created_at", "id", **only_where("feedback IS NOT NULL")),
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
    Column("history_id", String),
    Column("history_number", Integer),
    Index("ix_traces_step", "step_id"),
    Index("ix_traces_run_created", "run_id", "created_at"),
    Index("ix_traces_created", "created_at"),
)

# What each request of a conversation changed since the one before it; read together with traces.
request_changes = Table(
    "request_changes",
    metadata,
    Column("history_id", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    owned_by("conversations", "conversation_id"),
    Column("created_at", Moment, nullable=False),
    Column("kept", Integer),
    Column("body", LargeBinary, nullable=False),
    Index("ix_request_changes_conversation", "conversation_id"),
    Index("ix_request_changes_created", "created_at"),
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
