"""MCP servers: made, changed, refreshed, deleted with their tools.

Tokens, header values and environment variables are sealed before they are stored and never shown again: an answer
holds `HIDDEN` in their place, and a change that sends `HIDDEN` back leaves the value as it is.

A server that does not answer can be kept all the same, with its trouble written beside it; only what could never be
right is refused. Programs on our own machine (stdio) are refused unless the operator allows them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from holdfast.core.errors import Invalid, NeedsApproval, NotFound
from holdfast.core.headers import unsendable
from holdfast.core.records import Actor, McpKind, McpServer, Tool
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.mcp import McpFailed, McpPeers, McpServerStore, OfferedTool, Reconciliation
from holdfast.ports.sealing import Sealer
from holdfast.records.mcp_tools import reconciled

HIDDEN = "********"
KINDS: tuple[McpKind, ...] = ("streamable_http", "sse", "stdio")
NO_SECRETS: Mapping[str, str] = {}


class McpServers:
    """`config` is what the client sent, by the names of the wire; a null says nothing."""

    def __init__(
        self,
        store: McpServerStore,
        peers: McpPeers,
        sealer: Sealer,
        clock: Clock,
    ) -> None:
        self._store = store
        self._peers = peers
        self._sealer = sealer
        self._clock = clock

    async def create(self, actor: Actor, server_name: str, config: Mapping[str, Any]) -> McpServer:
        """The server with its tools, if it answers; else with the reason why it does not."""
        server = self._new(actor, server_name, config)
        trouble, offered = await self._tried(server)
        server = replace(server, trouble=trouble)
        await self._store.add(server)
        if offered is not None:
            await self._reconciled(actor, server, offered)
        return server

    async def probe(self, actor: Actor, server_name: str, config: Mapping[str, Any]) -> Sequence[OfferedTool]:
        """What such a server offers; nothing is stored. Raises `McpFailed`."""
        return await self._peers.offered(self._new(actor, server_name, config), NO_SECRETS)

    async def change(
        self, actor: Actor, server_id: str, server_name: str | None, config: Mapping[str, Any]
    ) -> McpServer:
        kind = (await self._store.get(actor.org_id, server_id)).kind
        given = self._checked(kind, config, whole=False)
        if _kind_in(config, kind) != kind:
            raise Invalid(f"This MCP server speaks {kind}; to change that, delete it and create another.")
        alter = partial(self._altered, actor, server_name, given, self._clock.now())
        server = await self._store.change(actor, server_id, alter)
        self._peers.forget(server_id)
        if not given:
            return server
        trouble, offered = await self._tried(server)
        if offered is not None:
            await self._reconciled(actor, server, offered)
        return await self._store.change(actor, server_id, lambda one: replace(one, trouble=trouble))

    async def get(self, actor: Actor, server_id: str) -> McpServer:
        return await self._store.get(actor.org_id, server_id)

    async def named(self, actor: Actor, server_name: str) -> McpServer:
        return await self._store.named(actor.org_id, server_name)

    async def listing(self, actor: Actor) -> Sequence[McpServer]:
        return await self._store.listing(actor)

    async def delete(self, actor: Actor, server_id: str) -> None:
        await self._store.delete(actor, server_id)
        self._peers.forget(server_id)

    async def offered(self, actor: Actor, server_id: str) -> Sequence[OfferedTool]:
        """What it offers now, as it says it; nothing is stored. Raises `McpFailed`."""
        return await self._peers.offered(await self.get(actor, server_id), NO_SECRETS)

    async def refresh(self, actor: Actor, server_id: str, secrets: Mapping[str, str] = NO_SECRETS) -> Reconciliation:
        """Bring its tools up to date: added, changed, gone. Raises `McpFailed`, and then none of them has changed."""
        server = await self.get(actor, server_id)
        try:
            offered = await self._peers.offered(server, secrets)
        except McpFailed as failed:
            trouble = str(failed)
            await self._store.change(actor, server_id, lambda one: replace(one, trouble=trouble))
            raise
        if server.trouble:
            await self._store.change(actor, server_id, lambda one: replace(one, trouble=None))
        return await self._reconciled(actor, server, offered)

    async def tools(self, actor: Actor, server_id: str) -> Sequence[Tool]:
        await self.get(actor, server_id)
        return await self._store.tools(actor, server_id)

    async def tool(self, actor: Actor, server_id: str, tool_id: str) -> Tool:
        for tool in await self.tools(actor, server_id):
            if tool.id == tool_id:
                return tool
        raise NotFound(f"The MCP server {server_id} has no tool {tool_id}.")

    async def tool_for_hand(self, actor: Actor, server_id: str, tool_id: str) -> Tool:
        """A tool that somebody wants to run by hand, for no agent. Raises `NeedsApproval`."""
        tool = await self.tool(actor, server_id, tool_id)
        if tool.default_requires_approval:
            raise NeedsApproval(tool.name)
        return tool

    # ---- talking to it ------------------------------------------------------------------------------------------

    async def _tried(self, server: McpServer) -> tuple[str | None, Sequence[OfferedTool] | None]:
        """Its tools, or why they cannot be read. An address where we never go is raised: waiting mends nothing."""
        try:
            return None, await self._peers.offered(server, NO_SECRETS)
        except McpFailed as failed:
            return str(failed), None

    async def _reconciled(self, actor: Actor, server: McpServer, offered: Sequence[OfferedTool]) -> Reconciliation:
        decide = partial(reconciled, actor, server, offered, self._clock.now())
        return await self._store.reconcile(actor, server.id, decide)

    # ---- what was sent ------------------------------------------------------------------------------------------

    def _new(self, actor: Actor, server_name: str, config: Mapping[str, Any]) -> McpServer:
        kind = _kind_in(config, "stdio" if config.get("command") else "streamable_http")
        now = self._clock.now()
        bare = McpServer(
            id=new_id("mcp_server"),
            org_id=actor.org_id,
            server_name=_checked_name(server_name),
            kind=kind,
            revision="",
            created_at=now,
            updated_at=now,
            created_by=actor.user_id,
        )
        return self._altered(actor, None, self._checked(kind, config, whole=True), now, bare)

    def _checked(self, kind: McpKind, config: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
        """The fields that count for this kind of server, refused if they could never work."""
        if refusal := self._peers.refusal(_kind_in(config, kind)):
            raise Invalid(refusal)
        wanted = ("command", "args", "env") if kind == "stdio" else _HTTP_FIELDS
        given = {name: config[name] for name in wanted if config.get(name) is not None}
        needed = "command" if kind == "stdio" else "server_url"
        if whole and not given.get(needed):
            raise Invalid(f"An MCP server of type {kind} needs {needed}.")
        if "server_url" in given:
            _check_url(given["server_url"])
        headers = {**(given.get("custom_headers") or {}), given.get("auth_header") or "x": given.get("auth_token", "")}
        if bad := unsendable(headers):
            raise Invalid(f"The header {bad!r} cannot be sent: only plain ASCII without line breaks can.")
        return given

    def _altered(
        self, actor: Actor, server_name: str | None, given: Mapping[str, Any], now: datetime, old: McpServer
    ) -> McpServer:
        fields: dict[str, Any] = {**given, "updated_at": now, "updated_by": actor.user_id}
        if server_name is not None:
            fields["server_name"] = _checked_name(server_name)
        if "args" in fields:
            fields["args"] = tuple(fields["args"])
        if (token := given.get("auth_token")) is not None:
            fields["auth_token"] = old.auth_token if token == HIDDEN else self._sealed(token)
        for name in ("custom_headers", "env"):
            if name in given:
                kept = getattr(old, name) or {}
                fields[name] = {
                    key: kept[key] if text == HIDDEN and key in kept else self._sealer.seal(text)
                    for key, text in given[name].items()
                }
        new = replace(old, **fields)
        _check_secrets_stay_home(old, new)
        return replace(new, revision=_revision(new))

    def _sealed(self, token: str) -> str | None:
        """An empty token takes the one there was away."""
        return self._sealer.seal(token) if token else None


_HTTP_FIELDS = ("server_url", "auth_header", "auth_token", "custom_headers")


def _kind_in(config: Mapping[str, Any], unsaid: McpKind) -> McpKind:
    said = config.get("mcp_server_type")
    if said is None:
        return unsaid
    if said not in KINDS:
        raise Invalid(f"mcp_server_type is {said!r}; it must be one of {', '.join(KINDS)}.")
    kind: McpKind = said
    return kind


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise Invalid("server_name must be a text of 1 to 200 printable characters.")
    return name


def _check_url(text: str) -> None:
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError as error:
        raise Invalid(f"server_url is not a URL: {error}.") from error
    if url.scheme not in ("http", "https") or not host:
        raise Invalid("server_url must begin with http:// or https:// and name a host.")
    if url.username or url.password:
        raise Invalid("server_url must not hold a user or password, since URLs are shown; use auth_token.")


def _check_secrets_stay_home(old: McpServer, new: McpServer) -> None:
    """A secret is for the host it was given for; who cannot read it must not be able to have it sent elsewhere."""
    if not old.server_url or _origin(old.server_url) == _origin(new.server_url or ""):
        return
    kept = {*(old.custom_headers or {}).values()} & {*(new.custom_headers or {}).values()}
    if kept or (old.auth_token and old.auth_token == new.auth_token):
        raise Invalid("The new server_url leads to another host; send auth_token and custom_headers again with it.")


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _revision(server: McpServer) -> str:
    leads_to = json.dumps([server.kind, server.server_url, server.command, list(server.args)])
    return hashlib.sha256(leads_to.encode()).hexdigest()[:16]
