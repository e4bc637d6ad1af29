"""Run tools on MCP servers. Implements `ports.toolbox.Toolbox` and `ports.stores.mcp_server_store.McpPeers`.

Everything that a server does becomes an outcome for the model: results, errors, timeouts. The tool's time limit
includes connecting. The call's idempotency key is sent in `_meta`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.core.errors import AskedWrongly, TellTheModel
from holdfast.core.http_headers import unsendable
from holdfast.core.records import McpKind, McpServer
from holdfast.ports.encryption import Encrypter, WrongKey
from holdfast.ports.outbound import AddressBook
from holdfast.ports.stores.mcp_server_store import McpFailed, McpServerStore, OfferedTool
from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.tools.mcp.connections import Connections
from holdfast.tools.mcp.server_address import AGENT_HEADER, Address, address_of
from holdfast.tools.sandbox.redaction import redacted_aside, redacted_text

NO_STDIO = (
    "MCP servers over stdio are programs that run on the server's machine, outside any sandbox. "
    "The operator has to allow that with HOLDFAST_MCP_STDIO_UNSANDBOXED=true."
)
UNSURE = " It is not known whether the call took effect."


class McpToolbox:
    """`stdio` is whether the operator allows MCP servers that are programs on this machine."""

    def __init__(
        self, store: McpServerStore, encrypter: Encrypter, book: AddressBook, *, connect_seconds: float, stdio: bool
    ) -> None:
        self._store = store
        self._encrypter = encrypter
        self._connections = Connections(book, connect_seconds)
        self._stdio = stdio

    async def run(self, job: ToolJob) -> ToolOutcome:
        if job.mcp is None:
            raise TellTheModel(f"{job.name} belongs to no MCP server.")
        name, secrets = job.mcp["tool_name"], dict(job.environment)
        try:
            server = await self._store.get(job.org_id, job.mcp["server_id"])
            address = self._address(server, job.agent_id, job.environment)
            secrets = _credentials(address) | secrets
            outcome = await self._connections.use(
                address, lambda session: session.call(name, job.arguments, job.idempotency_key), job.limits.wall_seconds
            )
        except McpFailed as failed:
            raise TellTheModel(redacted_text(f"{failed}{UNSURE if failed.unsure else ''}", secrets)) from failed
        except AskedWrongly as refused:  # the server was deleted, is not allowed, or has a refused address
            raise TellTheModel(redacted_text(str(refused), secrets)) from refused
        return await redacted_aside(outcome, secrets)

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
            address = address_of(server, self._encrypter, agent_id, secrets)
        except WrongKey as error:
            raise AskedWrongly(f"A secret of the MCP server {server.server_name} cannot be read. {error}") from error
        if bad := unsendable(dict(address.headers)):
            raise AskedWrongly(f"The header {bad} of the MCP server {server.server_name} cannot be sent as it stands.")
        return address


def _credentials(address: Address) -> dict[str, str]:
    """The credentials that are sent to a server, by name, because some servers repeat them in a result or an error."""
    headers = {name: value for name, value in address.headers if name != AGENT_HEADER}
    bare = {name: value.removeprefix("Bearer ").removeprefix("Basic ") for name, value in headers.items()}
    return dict(address.env) | bare
