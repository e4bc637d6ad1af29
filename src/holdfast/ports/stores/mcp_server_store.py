"""The interfaces for MCP servers: the store of their records, and the client that connects to them.

MCP servers are not trusted: they may be slow, down or send wrong data. The client enforces a timeout and reports every
failure of a server as `McpFailed`, never as an internal error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.core.errors import TryLater
from holdfast.core.records import Actor, McpKind, McpServer, Tool


class McpFailed(TryLater):
    """A request to the MCP server failed.

    `late`: it timed out; otherwise the connection failed. `unsure`: a call was already sent, so it may have taken
    effect.
    """

    def __init__(self, message: str, *, late: bool = False, unsure: bool = False) -> None:
        super().__init__(message)
        self.late = late
        self.unsure = unsure


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as its server describes it. The description is not trusted and is checked before it is stored."""

    name: str
    description: str
    schema: Mapping[str, Any]
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The changes that bring the stored tools of a server up to date, written in one transaction. `changed` tools have
    a row already, `added` have none, and the rows of `gone` are deleted."""

    added: tuple[Tool, ...] = ()
    changed: tuple[Tool, ...] = ()
    gone: tuple[Tool, ...] = ()


AlterServer = Callable[[McpServer], McpServer]
# Given the stored tools of this server and the names of all other tools: the changes to make.
Reconcile = Callable[[Sequence[Tool], frozenset[str]], Reconciliation]


class McpServerStore(Protocol):
    async def add(self, new: McpServer) -> None:
        """Raises `Conflict` if the name is taken."""
        ...

    async def get(self, org_id: str, server_id: str) -> McpServer:
        """Raises `NotFound`."""
        ...

    async def named(self, org_id: str, server_name: str) -> McpServer:
        """Raises `NotFound`."""
        ...

    async def listing(self, actor: Actor) -> Sequence[McpServer]:
        """All servers of the organisation, oldest first."""
        ...

    async def change(self, actor: Actor, server_id: str, alter: AlterServer) -> McpServer:
        """Also writes a new name or revision to the server's tools. Raises `Conflict` if the new name is taken."""
        ...

    async def delete(self, actor: Actor, server_id: str) -> None:
        """Delete the server and its tools."""
        ...

    async def tools(self, actor: Actor, server_id: str) -> Sequence[Tool]: ...

    async def reconcile(self, actor: Actor, server_id: str, reconcile: Reconcile) -> Reconciliation:
        """Read the tools, decide and write in one transaction."""
        ...


class McpPeers(Protocol):
    def refusal(self, kind: McpKind) -> str | None:
        """Why Holdfast is not allowed to connect to servers of this kind; None if it is allowed."""
        ...

    async def offered(self, server: McpServer, secrets: Mapping[str, str]) -> Sequence[OfferedTool]:
        """The tools that the server offers now. `secrets` fill the templates in its headers.

        Raises `McpFailed`, or `AddressRefused` if its address is not allowed."""
        ...

    def forget(self, server_id: str) -> None:
        """Close the open connections to a server that was changed or deleted, once their requests are done."""
        ...
