"""The promises around MCP servers: what is stored of them, and whoever talks to them.

A server is somebody else's: it may be slow, dead, lying or gone. Whoever talks to it does so within a deadline, and
says what went wrong as an `McpFailed`; a server that misbehaves is never a bug of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.core.errors import TryLater
from holdfast.core.records import Actor, McpKind, McpServer, Tool


class McpFailed(TryLater):
    """The server did not do what was asked of it.

    `late`: it took too long; else it could not be talked to. `unsure`: a call had begun, and nobody can say whether
    it took effect.
    """

    def __init__(self, message: str, *, late: bool = False, unsure: bool = False) -> None:
        super().__init__(message)
        self.late = late
        self.unsure = unsure


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as its server describes it. All of it is the server's word, so it is checked before it is stored."""

    name: str
    description: str
    schema: Mapping[str, Any]
    annotations: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a server's tools should be: written all together. `changed` have a row already, `added` have none."""

    added: tuple[Tool, ...] = ()
    changed: tuple[Tool, ...] = ()
    gone: tuple[Tool, ...] = ()


AlterServer = Callable[[McpServer], McpServer]
# From the tools that this server has and the names that other tools have.
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
        """All of them, oldest first."""
        ...

    async def change(self, actor: Actor, server_id: str, alter: AlterServer) -> McpServer:
        """Also tells the server's tools of a new name or revision. Raises `Conflict` if the new name is taken."""
        ...

    async def delete(self, actor: Actor, server_id: str) -> None:
        """With its tools."""
        ...

    async def tools(self, actor: Actor, server_id: str) -> Sequence[Tool]: ...

    async def reconcile(self, actor: Actor, server_id: str, reconcile: Reconcile) -> Reconciliation:
        """Read the tools, decide and write, with nobody in between."""
        ...


class McpPeers(Protocol):
    def refusal(self, kind: McpKind) -> str | None:
        """Why this server never connects in this way; None if it does."""
        ...

    async def offered(self, server: McpServer, secrets: Mapping[str, str]) -> Sequence[OfferedTool]:
        """What the server offers now. `secrets` fill the templates in its headers.

        Raises `McpFailed`, or `AddressRefused` if its address is one where we do not go."""
        ...

    def forget(self, server_id: str) -> None:
        """The server was changed or deleted: open connections to it are closed once nobody uses them."""
        ...
