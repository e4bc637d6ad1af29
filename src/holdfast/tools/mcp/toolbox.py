"""MCP servers' tools. Implements `ports.toolbox.Toolbox` for them, and `ports.mcp.McpPeers`.

Whatever a server does is an outcome for the model: its results, its errors, its silence. A call has its tool's time
limit, connecting included. The call's idempotency key goes along as `_meta`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.errors import AskedWrongly, TellTheModel
from holdfast.core.headers import unsendable
from holdfast.core.records import McpKind, McpServer
from holdfast.ports.mcp import McpFailed, McpServerStore, OfferedTool
from holdfast.ports.outbound import AddressBook
from holdfast.ports.sealing import Sealer, WrongKey
from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.tools.mcp.addressing import Address, address_of
from holdfast.tools.mcp.connections import Connections

NO_STDIO = (
    "MCP servers over stdio are programs that run on the server's machine, outside any sandbox. "
    "The operator has to allow that with HOLDFAST_MCP_STDIO_UNSANDBOXED=true."
)
UNSURE = " It is not known whether the call took effect."


class McpToolbox:
    """`stdio` is whether the operator lets users start programs on this machine."""

    def __init__(
        self, store: McpServerStore, sealer: Sealer, book: AddressBook, *, connect_seconds: float, stdio: bool
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._connections = Connections(book, connect_seconds)
        self._stdio = stdio

    async def run(self, job: ToolJob) -> ToolOutcome:
        if job.mcp is None:
            raise TellTheModel(f"{job.name} belongs to no MCP server.")
        name = job.mcp["tool_name"]
        try:
            server = await self._store.get(job.org_id, job.mcp["server_id"])
            address = self._address(server, job.agent_id, job.environment)
            return await self._connections.use(
                address, lambda session: session.call(name, job.arguments, job.idempotency_key), job.limits.wall_seconds
            )
        except McpFailed as failed:
            raise TellTheModel(f"{failed}{UNSURE if failed.unsure else ''}") from failed
        except AskedWrongly as refused:  # gone, forbidden, or at an address where we do not go
            raise TellTheModel(str(refused)) from refused

    async def close(self) -> None:
        await self._connections.close()

    def refusal(self, kind: McpKind) -> str | None:
        return NO_STDIO if kind == "stdio" and not self._stdio else None

    async def offered(self, server: McpServer, secrets: Mapping[str, str]) -> Sequence[OfferedTool]:
        address = self._address(server, "", secrets)
        seconds = self._connections.connect_seconds
        found: Sequence[OfferedTool] = await self._connections.use(address, lambda session: session.offered(), seconds)
        return found

    def forget(self, server_id: str) -> None:
        self._connections.forget(server_id)

    def _address(self, server: McpServer, agent_id: str, secrets: Mapping[str, str]) -> Address:
        if refusal := self.refusal(server.kind):
            raise AskedWrongly(refusal)
        try:
            address = address_of(server, self._sealer, agent_id, secrets)
        except WrongKey as error:
            raise AskedWrongly(f"A secret of the MCP server {server.server_name} cannot be read. {error}") from error
        if bad := unsendable(dict(address.headers)):
            raise AskedWrongly(f"The header {bad} of the MCP server {server.server_name} cannot be sent as it stands.")
        return address
