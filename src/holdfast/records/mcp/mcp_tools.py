"""Convert the tools that an MCP server offers to stored tools: their names, schemas, and what a refresh changes. Pure.

A server is not trusted. Its tool never gets the name of a tool of another kind, or of a base tool: an agent that was
told to use `memory_insert` must get ours. A refresh keeps the settings that users made on a tool (approval, expiry,
tags, `on_unknown`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.core.errors import Invalid
from holdfast.core.records import Actor, McpServer, Tool
from holdfast.core.tools.tool_schemas import check_tool_schema
from holdfast.ports.ids import new_id
from holdfast.ports.stores.mcp_server_store import OfferedTool, Reconciliation
from holdfast.records.base_tool_table import BASE_TOOLS

EXTERNAL = "external_mcp"
BASE_TOOL_NAMES = frozenset(tool.name for tool in BASE_TOOLS)
NAME_CHARACTERS = 64
DESCRIPTION_CHARACTERS = 10_000
SCHEMA_BYTES = 100_000
_UNUSUAL = re.compile(r"[^a-zA-Z0-9_-]+")


def reconciled(
    actor: Actor,
    server: McpServer,
    offered: Sequence[OfferedTool],
    now: datetime,
    mine: Sequence[Tool],
    taken: frozenset[str],
) -> Reconciliation:
    """Compare the server's offer with the stored tools. A tool is identified by the name that its server uses.

    `mine` are the stored tools of this server, `taken` are the names of all other tools."""
    offers = {offer.name: offer for offer in reversed(offered)}  # if two have the same name, the first wins
    known = {_name_on_server(tool): tool for tool in mine}
    names = {*taken, *BASE_TOOL_NAMES, *(tool.name for tool in mine)}
    added: list[Tool] = []
    changed: list[Tool] = []
    for offer in reversed(offers.values()):
        old = known.get(offer.name)
        if old is None:
            added.append(_new(actor, server, offer, _free_name(server, offer.name, names), now))
            names.add(added[-1].name)
        elif (new := _as_offered(old, server, offer)) != old:
            changed.append(replace(new, updated_at=now, updated_by=actor.user_id))
    gone = tuple(tool for name, tool in known.items() if name not in offers)
    return Reconciliation(tuple(added), tuple(changed), gone)


def _name_on_server(tool: Tool) -> str:
    return str((tool.mcp or {}).get("tool_name"))


def _new(actor: Actor, server: McpServer, offer: OfferedTool, name: str, now: datetime) -> Tool:
    bare = Tool(
        id=new_id("tool"),
        org_id=actor.org_id,
        name=name,
        tool_type=EXTERNAL,
        source_type="json",
        tags=(f"mcp:{server.server_name}",),
        on_unknown=None,
        created_at=now,
        updated_at=now,
        created_by=actor.user_id,
        updated_by=actor.user_id,
    )
    return _as_offered(bare, server, offer)


def _as_offered(tool: Tool, server: McpServer, offer: OfferedTool) -> Tool:
    description = offer.description[:DESCRIPTION_CHARACTERS] or offer.name
    shown = {"server_id": server.id, "server_name": server.server_name, "tool_name": offer.name}
    return replace(
        tool,
        description=description,
        json_schema={"name": tool.name, "description": description, "parameters": parameters_of(offer.schema)},
        metadata={**(tool.metadata or {}), "mcp": {**shown, "annotations": dict(offer.annotations)}},
        mcp={"server_id": server.id, "tool_name": offer.name, "revision": server.revision},
    )


def _free_name(server: McpServer, name: str, names: set[str]) -> str:
    """The server's own name for the tool, with unusual characters replaced. If that is taken: with the server's name in
    front, or with a hash at the end."""
    plain = _UNUSUAL.sub("_", name)[:NAME_CHARACTERS] or "tool"
    for candidate in (plain, _UNUSUAL.sub("_", f"{server.server_name}_{name}")[:NAME_CHARACTERS]):
        if candidate not in names:
            return candidate
    mark = hashlib.sha256(f"{server.id} {name}".encode()).hexdigest()[:8]
    return f"{plain[: NAME_CHARACTERS - 9]}_{mark}"


# ---- schemas --------------------------------------------------------------------------------------------------------

ANYTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": True}
_NOT_FOR_MODELS = frozenset({"$schema", "$id", "$defs", "definitions", "title"})


def parameters_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An input schema in the form that every model vendor accepts: an object with named properties and no references.

    A schema that is invalid, too large, or has too many nested references becomes "any object": the MCP server checks
    the arguments anyway.
    """
    try:
        plain = _expanded(schema, schema, (), _Budget())
        size = len(json.dumps(plain))
    except (_TooManyNodes, RecursionError, ValueError, TypeError):
        return dict(ANYTHING)
    if size > SCHEMA_BYTES or not isinstance(plain, dict):
        return dict(ANYTHING)
    properties = plain.get("properties")
    required = plain.get("required")
    parameters = {key: value for key, value in plain.items() if key not in _NOT_FOR_MODELS}
    parameters |= {"type": "object", "properties": properties if isinstance(properties, dict) else {}}
    known = [name for name in required if name in parameters["properties"]] if isinstance(required, list) else []
    made = parameters | {"required": known}
    try:
        check_tool_schema({"name": "", "parameters": made})
    except Invalid:
        return dict(ANYTHING)
    return made


class _TooManyNodes(Exception):
    """The schema has more nodes than the budget once its references are expanded."""


class _Budget:
    """How many more nodes an expanded schema may have."""

    def __init__(self) -> None:
        self.left = 5_000

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _TooManyNodes


def _expanded(node: Any, root: Mapping[str, Any], inside: tuple[str, ...], budget: _Budget) -> Any:
    """The node with its references replaced by their targets. A type that contains itself becomes "any object" at the
    inner occurrence."""
    budget.spend()
    if isinstance(node, list):
        return [_expanded(item, root, inside, budget) for item in node]
    if not isinstance(node, Mapping):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        rest = {key: value for key, value in node.items() if key != "$ref"}
        if reference in inside:
            return {"type": "object", **rest}
        target = _expanded(_resolve(root, reference), root, (*inside, reference), budget)
        return {**(target if isinstance(target, dict) else {}), **_expanded(rest, root, inside, budget)}
    return {
        str(key): _expanded(value, root, inside, budget)
        for key, value in node.items()
        if key not in ("$defs", "definitions")
    }


def _resolve(root: Mapping[str, Any], reference: str) -> Any:
    target: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, Mapping) else None
    return {} if target is None else target
