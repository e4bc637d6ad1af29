"""Register, change, refresh and delete MCP servers, together with their tools.

Tokens, header values and environment variables are encrypted before they are stored and never shown again: a response
holds `HIDDEN` in their place, and a change that sends `HIDDEN` back keeps the stored value.

A server that cannot be reached is stored all the same, with the error beside it; only a configuration that could never
work is rejected. Programs on the server's own machine (stdio) are rejected unless the operator allows them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit

from holdfast.core.errors import Invalid, NeedsApproval, NotFound
from holdfast.core.http_headers import unsendable
from holdfast.core.records import Actor, McpKind, McpServer, Tool
from holdfast.ports.clock import Clock
from holdfast.ports.encryption import Encrypter
from holdfast.ports.ids import new_id
from holdfast.ports.stores.mcp_server_store import McpFailed, McpPeers, McpServerStore, OfferedTool, Reconciliation
from holdfast.records.mcp.mcp_tools import reconciled
from holdfast.records.sent_fields import sent_fields

HIDDEN = "********"
KINDS: tuple[McpKind, ...] = ("streamable_http", "sse", "stdio")
NO_SECRETS: Mapping[str, str] = {}
_STDIO_FIELDS = ("command", "args", "env")
_HTTP_FIELDS = ("server_url", "auth_header", "auth_token", "custom_headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerConfig:
    """What a client sent about an MCP server: the fields of all types of server. None leaves a field as it is."""

    mcp_server_type: str | None = None
    server_url: str | None = None
    auth_header: str | None = None
    auth_token: str | None = None
    custom_headers: Mapping[str, str] | None = None
    command: str | None = None
    args: Sequence[str] | None = None
    env: Mapping[str, str] | None = None


class McpServers:
    def __init__(
        self,
        store: McpServerStore,
        peers: McpPeers,
        encrypter: Encrypter,
        clock: Clock,
    ) -> None:
        self._store = store
        self._peers = peers
        self._encrypter = encrypter
        self._clock = clock

    async def create(self, actor: Actor, server_name: str, config: McpServerConfig) -> McpServer:
        """Store the server with its tools; if it cannot be reached, with the reason instead."""
        server = self._new(actor, server_name, config)
        trouble, offered = await self._try_listing(server)
        server = replace(server, trouble=trouble)
        await self._store.add(server)
        if offered is not None:
            await self._reconcile(actor, server, offered)
        return server

    async def probe(self, actor: Actor, server_name: str, config: McpServerConfig) -> Sequence[OfferedTool]:
        """The tools that a server with this configuration offers. Nothing is stored. Raises `McpFailed`."""
        return await self._peers.offered(self._new(actor, server_name, config), NO_SECRETS)

    async def change(self, actor: Actor, server_id: str, server_name: str | None, config: McpServerConfig) -> McpServer:
        kind = (await self._store.get(actor.org_id, server_id)).kind
        given = self._checked(kind, config, whole=False)
        if _kind_in(config, kind) != kind:
            raise Invalid(f"This MCP server speaks {kind}; to change that, delete it and create another.")
        alter = partial(self._with_fields, actor, server_name, given, self._clock.now())
        server = await self._store.change(actor, server_id, alter)
        self._peers.forget(server_id)
        if given == McpServerConfig():
            return server
        trouble, offered = await self._try_listing(server)
        if offered is not None:
            await self._reconcile(actor, server, offered)
        return await self._store.change(actor, server_id, lambda one: replace(one, trouble=trouble))

    async def delete(self, actor: Actor, server_id: str) -> None:
        await self._store.delete(actor, server_id)
        self._peers.forget(server_id)

    async def offered(self, actor: Actor, server_id: str) -> Sequence[OfferedTool]:
        """The tools that the server offers now, unchanged. Nothing is stored. Raises `McpFailed`."""
        return await self._peers.offered(await self._store.get(actor.org_id, server_id), NO_SECRETS)

    async def refresh(self, actor: Actor, server_id: str, secrets: Mapping[str, str] = NO_SECRETS) -> Reconciliation:
        """Update the stored tools from the server: add, change, delete. If it raises `McpFailed`, none has changed."""
        server = await self._store.get(actor.org_id, server_id)
        try:
            offered = await self._peers.offered(server, secrets)
        except McpFailed as failed:
            trouble = str(failed)
            await self._store.change(actor, server_id, lambda one: replace(one, trouble=trouble))
            raise
        if server.trouble:
            await self._store.change(actor, server_id, lambda one: replace(one, trouble=None))
        return await self._reconcile(actor, server, offered)

    async def tools(self, actor: Actor, server_id: str) -> Sequence[Tool]:
        await self._store.get(actor.org_id, server_id)
        return await self._store.tools(actor, server_id)

    async def tool(self, actor: Actor, server_id: str, tool_id: str) -> Tool:
        for tool in await self.tools(actor, server_id):
            if tool.id == tool_id:
                return tool
        raise NotFound(f"The MCP server {server_id} has no tool {tool_id}.")

    async def tool_for_direct_run(self, actor: Actor, server_id: str, tool_id: str) -> Tool:
        """A tool to run directly, without an agent. Raises `NeedsApproval`."""
        tool = await self.tool(actor, server_id, tool_id)
        if tool.default_requires_approval:
            raise NeedsApproval(tool.name)
        return tool

    # ---- connecting ---------------------------------------------------------------------------------------------

    async def _try_listing(self, server: McpServer) -> tuple[str | None, Sequence[OfferedTool] | None]:
        """The error text and the tools, one of them None. A forbidden address raises: a retry would not help."""
        try:
            return None, await self._peers.offered(server, NO_SECRETS)
        except McpFailed as failed:
            return str(failed), None

    async def _reconcile(self, actor: Actor, server: McpServer, offered: Sequence[OfferedTool]) -> Reconciliation:
        decide = partial(reconciled, actor, server, offered, self._clock.now())
        return await self._store.reconcile(actor, server.id, decide)

    # ---- configuration ------------------------------------------------------------------------------------------

    def _new(self, actor: Actor, server_name: str, config: McpServerConfig) -> McpServer:
        kind = _kind_in(config, "stdio" if config.command else "streamable_http")
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
        return self._with_fields(actor, None, self._checked(kind, config, whole=True), now, bare)

    def _checked(self, kind: McpKind, config: McpServerConfig, *, whole: bool) -> McpServerConfig:
        """The fields that apply to this kind of server. Raises `Invalid` if they could never work."""
        if refusal := self._peers.refusal(_kind_in(config, kind)):
            raise Invalid(refusal)
        names = _STDIO_FIELDS if kind == "stdio" else _HTTP_FIELDS
        sent = sent_fields(config, McpServerConfig)
        given = McpServerConfig(**{name: sent[name] for name in names if name in sent})
        needed = "command" if kind == "stdio" else "server_url"
        if whole and not getattr(given, needed):
            raise Invalid(f"An MCP server of type {kind} needs {needed}.")
        if given.server_url is not None:
            _check_url(given.server_url)
        headers = {**(given.custom_headers or {}), given.auth_header or "x": given.auth_token or ""}
        if bad := unsendable(headers):
            raise Invalid(f"The header {bad!r} cannot be sent: only plain ASCII without line breaks can.")
        return given

    def _with_fields(
        self, actor: Actor, server_name: str | None, given: McpServerConfig, now: datetime, old: McpServer
    ) -> McpServer:
        fields = sent_fields(given, McpServerConfig) | {"updated_at": now, "updated_by": actor.user_id}
        if server_name is not None:
            fields["server_name"] = _checked_name(server_name)
        if (token := given.auth_token) is not None:
            fields["auth_token"] = old.auth_token if token == HIDDEN else self._encrypted(token)
        if given.custom_headers is not None:
            fields["custom_headers"] = self._encrypted_all(given.custom_headers, old.custom_headers or {})
        if given.env is not None:
            fields["env"] = self._encrypted_all(given.env, old.env or {})
        new = replace(old, **fields)
        _check_secrets_not_redirected(old, new)
        return replace(new, revision=_revision(new))

    def _encrypted_all(self, sent: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
        return {
            key: kept[key] if text == HIDDEN and key in kept else self._encrypter.encrypt(text)
            for key, text in sent.items()
        }

    def _encrypted(self, token: str) -> str | None:
        """An empty token removes the stored one."""
        return self._encrypter.encrypt(token) if token else None


def _kind_in(config: McpServerConfig, default: McpKind) -> McpKind:
    sent = config.mcp_server_type
    if sent is None:
        return default
    for kind in KINDS:
        if sent == kind:
            return kind
    raise Invalid(f"mcp_server_type is {sent!r}; it must be one of {', '.join(KINDS)}.")


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


def _check_secrets_not_redirected(old: McpServer, new: McpServer) -> None:
    """Reject a new host that would receive stored secrets: a client that cannot read a secret must not be able to have
    it sent to a host of its choice."""
    if not old.server_url or _origin(old.server_url) == _origin(new.server_url or ""):
        return
    kept = {*(old.custom_headers or {}).values()} & {*(new.custom_headers or {}).values()}
    if kept or (old.auth_token and old.auth_token == new.auth_token):
        raise Invalid("The new server_url leads to another host; send auth_token and custom_headers again with it.")


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _revision(server: McpServer) -> str:
    """A hash of where a call goes and with which (encrypted) credentials. Approvals are bound to it."""
    credentials = [server.auth_header, server.auth_token, server.custom_headers, server.env]
    target = json.dumps([server.kind, server.server_url, server.command, list(server.args), credentials], default=dict)
    return hashlib.sha256(target.encode()).hexdigest()[:16]
