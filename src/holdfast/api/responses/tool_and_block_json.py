"""Tools and memory blocks as JSON. Every field is present, nulls included."""

from __future__ import annotations

from typing import Any

from holdfast.core.records import Block, Tool


def tool_json(tool: Tool) -> dict[str, Any]:
    return {
        "id": tool.id,
        "tool_type": tool.tool_type,
        "description": tool.description,
        "source_type": tool.source_type,
        "name": tool.name,
        "tags": list(tool.tags),
        "source_code": tool.source_code,
        "json_schema": tool.json_schema,
        "args_json_schema": tool.args_json_schema,
        "return_char_limit": tool.return_char_limit,
        "pip_requirements": None if tool.pip_requirements is None else list(tool.pip_requirements),
        "npm_requirements": None if tool.npm_requirements is None else list(tool.npm_requirements),
        "default_requires_approval": tool.default_requires_approval,
        "approval_expiry": tool.approval_expiry or None,
        "on_unknown": tool.on_unknown,
        "enable_parallel_execution": tool.enable_parallel_execution,
        "created_by_id": tool.created_by,
        "last_updated_by_id": tool.updated_by,
        # The SDKs really call this key `metadata_`, with an underscore.
        "metadata_": {} if tool.metadata is None else tool.metadata,
        "project_id": tool.project_id,
    }


def block_json(block: Block) -> dict[str, Any]:
    return {
        "id": block.id,
        "label": block.label,
        "value": block.value,
        "limit": block.limit,
        "description": block.description,
        "read_only": block.read_only,
        "hidden": block.hidden,
        "is_template": block.is_template,
        "metadata": {} if block.metadata is None else block.metadata,
        "tags": list(block.tags),
        "project_id": block.project_id,
        "template_name": block.template_name,
        "template_id": block.template_id,
        "base_template_id": block.base_template_id,
        "deployment_id": block.deployment_id,
        "entity_id": block.entity_id,
        "preserve_on_migration": block.preserve_on_migration,
        "created_by_id": block.created_by,
        "last_updated_by_id": block.updated_by,
    }
