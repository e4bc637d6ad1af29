"""Table definitions of user data, conversations, tool calls and decisions; re-exports the tables of `run_tables`.

In this order: organisations, users and API keys; agents, tools, blocks, archives and providers; conversations, lineage,
messages and context; the ledger of tool calls, allowances, decisions and announcements. Runs, with their steps and
events, are in `run_tables`. Other modules import every table from here. A test proves that the migrations build exactly
these tables.

Records have a column for each field that is filtered or sorted by, and the rest in `document`. Foreign keys with ON
DELETE CASCADE delete everything that belongs to an agent, a conversation or a run together with it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from holdfast.storage.schema.columns import Document, Moment, id_column, only_where, org_column, owned_by, stamp_columns
from holdfast.storage.schema.columns import metadata as metadata
from holdfast.storage.schema.run_tables import events as events
from holdfast.storage.schema.run_tables import outbox as outbox
from holdfast.storage.schema.run_tables import request_changes as request_changes
from holdfast.storage.schema.run_tables import run_keys as run_keys
from holdfast.storage.schema.run_tables import run_tools as run_tools
from holdfast.storage.schema.run_tables import runs as runs
from holdfast.storage.schema.run_tables import steps as steps
from holdfast.storage.schema.run_tables import traces as traces

# ---- organisations and users -------------------------------------------------------------------------------------

organizations = Table(
    "organizations",
    metadata,
    id_column(),
    Column("name", String, nullable=False),
    Column("created_at", Moment, nullable=False),
)

users = Table(
    "users",
    metadata,
    id_column(),
    org_column(),
    Column("name", String, nullable=False),
    Column("created_at", Moment, nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    id_column(),
    org_column(),
    owned_by("users", "user_id"),
    Column("name", String, nullable=False),
    Column("digest", String, nullable=False, unique=True),
    Column("created_at", Moment, nullable=False),
    Column("revoked_at", Moment),
)

# ---- agents, and what they use -----------------------------------------------------------------------------------

agents = Table(
    "agents",
    metadata,
    id_column(),
    org_column(),
    Column("name", String, nullable=False),
    Column("hidden", Boolean),
    Column("project_id", String),
    Column("template_id", String),
    Column("base_template_id", String),
    Column("last_stop_reason", String),
    Column("last_run_completion", Moment),
    Column("last_run_duration_ms", BigInteger),
    Column("document", Document, nullable=False),
    *stamp_columns(),
    Column("revision", BigInteger, nullable=False, server_default="0"),
    Index("ix_agents_org_created", "org_id", "created_at", "id"),
    Index("ix_agents_org_name", "org_id", "name", "created_at", "id"),
)

agent_tags = Table(
    "agent_tags", metadata, owned_by("agents", "agent_id", primary_key=True), Column("tag", String, primary_key=True)
)
Index("ix_agent_tags_tag", agent_tags.c.tag, agent_tags.c.agent_id)

tools = Table(
    "tools",
    metadata,
    id_column(),
    org_column(),
    Column("name", String, nullable=False),
    Column("tool_type", String, nullable=False),
    Column("document", Document, nullable=False),
    *stamp_columns(),
    UniqueConstraint("org_id", "name"),
    Index("ix_tools_org_created", "org_id", "created_at", "id"),
)

mcp_servers = Table(
    "mcp_servers",
    metadata,
    id_column(),
    org_column(),
    Column("server_name", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("document", Document, nullable=False),
    *stamp_columns(),
    UniqueConstraint("org_id", "server_name"),
)

agent_tools = Table(
    "agent_tools",
    metadata,
    owned_by("agents", "agent_id", primary_key=True),
    owned_by("tools", "tool_id", primary_key=True),
    Column("position", Integer, nullable=False),
    Index("ix_agent_tools_tool", "tool_id"),
)

blocks = Table(
    "blocks",
    metadata,
    id_column(),
    org_column(),
    Column("label", String, nullable=False),
    Column("value", Text, nullable=False),
    Column("description", Text),
    Column("is_template", Boolean, nullable=False),
    Column("template_name", String),
    Column("project_id", String),
    Column("hidden", Boolean),
    Column("document", Document, nullable=False),
    *stamp_columns(),
    Index("ix_blocks_org_created", "org_id", "created_at", "id"),
)

agent_blocks = Table(
    "agent_blocks",
    metadata,
    owned_by("agents", "agent_id", primary_key=True),
    owned_by("blocks", "block_id", primary_key=True),
    Column("position", Integer, nullable=False),
    Index("ix_agent_blocks_block", "block_id"),
)

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

# One row per model, so that a model call reads one row and not the provider's whole list.
provider_models = Table(
    "provider_models",
    metadata,
    owned_by("providers", "provider_id", primary_key=True),
    Column("name", String, primary_key=True),
    Column("document", Document, nullable=False),
)

# ---- conversations -----------------------------------------------------------------------------------------------

conversations = Table(
    "conversations",
    metadata,
    id_column(),
    org_column(),
    owned_by("agents", "agent_id"),
    Column("is_default", Boolean, nullable=False),
    Column("next_seq", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("context_tokens", BigInteger),
    Column("unanswered_from", BigInteger),
    Column("summary", Text),
    Column("hidden", Boolean),
    Column("archived_at", Moment),
    Column("deleted_at", Moment),
    Column("last_message_at", Moment),
    Column("document", Document, nullable=False),
    *stamp_columns(),
    Index("ix_conversations_org_created", "org_id", "created_at", "id", **only_where("NOT is_default")),
    Index("ix_conversations_agent_created", "agent_id", "is_default", "created_at", "id"),
    Index(
        "uq_conversations_default",
        "agent_id",
        unique=True,
        **only_where("is_default"),
    ),
)

# Word for word as in ix_conversations_org_created, for the same reason as `UNRETURNED` below.
IS_NOT_DEFAULT = text("NOT conversations.is_default")

lineage = Table(
    "lineage",
    metadata,
    owned_by("conversations", "conversation_id", primary_key=True),
    owned_by("conversations", "ancestor_id", primary_key=True),
    Column("up_to_seq", BigInteger),
    Index("ix_lineage_ancestor", "ancestor_id"),
)

messages = Table(
    "messages",
    metadata,
    id_column(),
    org_column(),
    owned_by("agents", "agent_id"),
    owned_by("conversations", "conversation_id"),
    Column("seq", BigInteger, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("run_id", String),
    Column("step_id", String),
    Column("otid", String),
    Column("name", String),
    Column("sender_id", String),
    Column("group_id", String),
    Column("body", Document, nullable=False),
    UniqueConstraint("conversation_id", "seq"),
    Index("ix_messages_agent_created", "agent_id", "created_at", "seq", "id"),
    Index("ix_messages_org_created", "org_id", "created_at", "seq", "id"),
    Index("ix_messages_run", "run_id", "seq"),
    Index("ix_messages_step", "step_id", "seq"),
)

context = Table(
    "context",
    metadata,
    owned_by("conversations", "conversation_id", primary_key=True),
    Column("position", BigInteger, primary_key=True),
    owned_by("messages", "message_id"),
    Index("ix_context_message", "message_id"),
)

# ---- tool calls and decisions ------------------------------------------------------------------------------------

ledger = Table(
    "ledger",
    metadata,
    Column("step_id", String, primary_key=True),
    Column("call_id", String, primary_key=True),
    org_column(),
    Column("agent_id", String, nullable=False),  # of the run, with which a call is deleted
    Column("conversation_id", String, nullable=False),
    owned_by("runs", "run_id"),
    Column("turn_id", String, nullable=False),
    Column("position", Integer, nullable=False),
    Column("name", String, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("status", String, nullable=False),
    Column("request_id", String),
    Column("client_side", Boolean, nullable=False),
    Column("executed", Boolean, nullable=False),
    Column("result", Document),
    Column("returned", Boolean, nullable=False),
    Column("edited", Text),
    Column("digest", String, nullable=False),
    Column("notes", Document, nullable=False),
    Column("approval_id", String, unique=True),
    Column("asked_at", Moment),
    Column("expires_at", Moment),
    Column("on_expiry", String),
    Column("warn_at", Moment),
    Column("created_at", Moment, nullable=False),
    Column("started_at", Moment),
    Column("settled_at", Moment),
    Index(
        "ix_ledger_unreturned",
        "conversation_id",
        "position",
        **only_where("NOT returned"),
    ),
    Index("ix_ledger_turn", "turn_id", "created_at", "position"),
    Index("ix_ledger_run", "run_id"),
    Index("ix_ledger_expiry", "expires_at", **only_where("expires_at IS NOT NULL AND NOT returned")),
    Index("ix_ledger_warning", "warn_at", **only_where("warn_at IS NOT NULL AND NOT returned")),
    Index("ix_ledger_asked", "org_id", "asked_at", "approval_id", **only_where("approval_id IS NOT NULL")),
    Index("ix_ledger_waiting", "org_id", "asked_at", "approval_id", **only_where("NOT returned")),
)

# SQLite uses a partial index only if the query repeats its condition word for word. `~ledger.c.returned` would be
# rendered as `returned = 0`, and the query would scan the whole ledger.
UNRETURNED = text("NOT ledger.returned")

allowances = Table(
    "allowances",
    metadata,
    id_column(),
    org_column(),
    Column("agent_id", String, nullable=False),  # of the conversation, with which an allowance is deleted
    owned_by("conversations", "conversation_id"),
    Column("tool_name", String, nullable=False),
    Column("arguments_digest", String),
    Column("tool_digest", String),  # null in rows of versions that did not bind allowances to the tool
    Column("created_at", Moment, nullable=False),
    Column("created_by", String),
    Column("revoked_at", Moment),
    Column("revoked_by", String),
    Index("ix_allowances_conversation", "conversation_id"),
    Index("ix_allowances_org_created", "org_id", "created_at", "id", **only_where("revoked_at IS NULL")),
)

decisions = Table(
    "decisions",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    org_column(),
    Column("step_id", String, nullable=False),
    Column("call_id", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("decided_by", String),
    Column("decided_at", Moment, nullable=False),
    Column("reason", Text),
    Column("tool_name", String, nullable=False),
    Column("tool_digest", String, nullable=False),
    Column("arguments_digest", String, nullable=False),
    Column("previous_hash", String, nullable=False),
    Column("hash", String, nullable=False),
    Index("ix_decisions_call", "step_id", "call_id"),
)

announcements = Table(
    "announcements",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    org_column(),
    Column("kind", String, nullable=False),
    Column("approval_id", String, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index("ix_announcements_org", "org_id", "number"),
)
