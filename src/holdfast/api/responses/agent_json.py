"""An agent as JSON: the `AgentState` of the official SDKs.

Every key is always present. Relationships (blocks, tools, secrets, …) are empty unless the request includes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.api.http.json_response import timestamp
from holdfast.api.responses.model_json import agent_llm_config, agent_model_settings, embedding_config, info_from_handle
from holdfast.api.responses.tool_and_block_json import block_json, tool_json
from holdfast.core.conversation.wire_messages import wire_messages
from holdfast.core.model import ModelInfo
from holdfast.core.records import Agent, Block
from holdfast.ports.stores.agent_store import AgentView, Wanted

MAX_FILES_OPEN = 10
FILE_WINDOW_CHARS = 25_000


def agent_state(view: AgentView, wanted: Wanted, known: Mapping[str, ModelInfo]) -> dict[str, Any]:
    """`known` holds what the providers report about the models that the agent names, by handle."""
    agent = view.agent
    info = known.get(agent.model) or info_from_handle(agent.model)
    return {
        "created_by_id": agent.created_by,
        "last_updated_by_id": agent.updated_by,
        "created_at": timestamp(agent.created_at),
        "updated_at": timestamp(agent.updated_at),
        "id": agent.id,
        "name": agent.name,
        "tool_rules": list(agent.tool_rules),
        "approval_policies": list(agent.approval_policies),
        "approval_expiry": agent.approval_expiry or None,
        "message_ids": list(view.message_ids),
        "system": agent.system,
        "agent_type": agent.agent_type,
        "llm_config": agent_llm_config(agent, info),
        "embedding_config": _embedding(agent, known),
        "model": agent.model,
        "embedding": agent.embedding,
        "model_settings": agent_model_settings(agent, info),
        "fallback_models": [dict(fallback) for fallback in agent.fallback_models],
        "compaction_settings": _compaction(agent),
        "budget": agent.budget,
        "response_format": agent.response_format,
        "description": agent.description,
        "metadata": agent.metadata,
        **_relationships(view, wanted),
        **_templates(agent),
        "message_buffer_autoclear": agent.message_buffer_autoclear,
        "enable_sleeptime": agent.enable_sleeptime,
        "last_run_completion": timestamp(agent.last_run_completion),
        "last_run_duration_ms": agent.last_run_duration_ms,
        "last_stop_reason": agent.last_stop_reason,
        "timezone": agent.timezone,
        "max_files_open": agent.max_files_open or MAX_FILES_OPEN,
        "per_file_view_window_char_limit": agent.per_file_view_window_char_limit or FILE_WINDOW_CHARS,
        "hidden": agent.hidden,
    }


def _relationships(view: AgentView, wanted: Wanted) -> dict[str, Any]:
    agent = view.agent
    secrets = _secrets(agent) if "secrets" in wanted else []
    identities = "identities" in wanted
    return {
        "memory": memory_json(agent.agent_type, view.blocks),
        "blocks": [block_json(block) for block in view.blocks],
        "tools": [tool_json(tool) for tool in view.tools],
        "sources": [],
        "tags": list(agent.tags) if "tags" in wanted else [],
        "tool_exec_environment_variables": secrets,
        "secrets": secrets,
        "identity_ids": list(agent.identity_ids) if identities else [],
        "identities": [],
        "pending_approval": None if view.pending is None else wire_messages(view.pending)[-1],
        "multi_agent_group": None,
        "managed_group": None,
    }


def memory_json(agent_type: str, blocks: Sequence[Block]) -> dict[str, Any]:
    return {
        "agent_type": agent_type,
        "git_enabled": False,
        "blocks": [block_json(block) for block in blocks],
        "file_blocks": [],
        "prompt_template": "",
    }


def _templates(agent: Agent) -> dict[str, Any]:
    return {
        "project_id": agent.project_id,
        "template_id": agent.template_id,
        "base_template_id": agent.base_template_id,
        "deployment_id": agent.deployment_id,
        "entity_id": agent.entity_id,
    }


def _embedding(agent: Agent, known: Mapping[str, ModelInfo]) -> Any:
    if agent.embedding_config is not None:
        return agent.embedding_config
    info = known.get(agent.embedding or "")
    return embedding_config(info) if info is not None and info.embedding_dim else None


def _compaction(agent: Agent) -> dict[str, Any]:
    return {
        "model": agent.model,
        "model_settings": None,
        "prompt": None,
        "prompt_acknowledgement": False,
        "clip_chars": 50_000,
        "mode": "sliding_window",
        "sliding_window_percentage": 0.3,
        **(agent.compaction_settings or {}),
    }


def _secrets(agent: Agent) -> list[dict[str, Any]]:
    """One object per variable. Variables have no rows of their own, so an id is derived from the agent and the name."""
    return [
        {
            "id": f"agent-env-{uuid.uuid5(uuid.NAMESPACE_OID, f'{agent.id}/{key}')}",
            "agent_id": agent.id,
            "key": key,
            "value": value,
            "value_enc": None,
            "description": None,
            "created_at": timestamp(agent.created_at),
            "updated_at": timestamp(agent.updated_at),
            "created_by_id": agent.created_by,
            "last_updated_by_id": agent.updated_by,
        }
        for key, value in agent.secrets.items()
    ]
