"""Build the toolbox that runs every kind of tool: sandboxed processes, built-ins, packages, MCP servers."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.app.private_files import check_tool_folders, hidden_from_tools
from holdfast.outbound.guarded_client import GuardedClient
from holdfast.outbound.guarded_resolver import GuardedAddresses
from holdfast.ports.clock import Clock
from holdfast.ports.encryption import Encrypter
from holdfast.ports.toolbox import Toolbox
from holdfast.settings import Settings
from holdfast.storage.records.archive_store import SqlArchives
from holdfast.storage.records.mcp_server_store import SqlMcpServers
from holdfast.storage.records.message_search import SqlMessageSearch
from holdfast.storage.sql.database import Database
from holdfast.tools.builtin.memory_search import MemorySearch
from holdfast.tools.builtin.toolbox import Builtins, ByKind
from holdfast.tools.builtin.web import Web
from holdfast.tools.mcp.toolbox import McpToolbox
from holdfast.tools.packages.environments import Environments, WithPackages
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The toolbox for runs, and the two parts of it that are also used directly."""

    toolbox: Toolbox
    processes: ProcessToolbox
    mcp: McpToolbox


def build_tools(
    settings: Settings,
    database: Database,
    encrypter: Encrypter,
    outbound: GuardedClient,
    clock: Clock,
    processes: ProcessToolbox,
) -> ServerTools:
    mcp = McpToolbox(
        SqlMcpServers(database),
        encrypter,
        GuardedAddresses(allow_private=settings.allow_private_urls),
        connect_seconds=settings.mcp_timeout_seconds,
        stdio=settings.mcp_stdio_unsandboxed,
    )
    memory_search = MemorySearch(SqlMessageSearch(database), SqlArchives(database), clock)
    own = Builtins(memory_search, Web(outbound, settings.exa_api_key, settings.exa_base_url), processes, clock)
    toolbox = ByKind(own, WithPackages(processes, _environments(settings, processes)), mcp, encrypter)
    return ServerTools(toolbox, processes, mcp)


def process_toolbox(settings: Settings) -> ProcessToolbox:
    """The toolbox for tools with source code. `holdfast doctor` uses it to report how well tools can be confined.

    Raises `CannotStart` if tools could reach the server's own files."""
    check_tool_folders(settings)
    return ProcessToolbox(
        hidden=hidden_from_tools(settings),
        writable=settings.tool_folders or (),
        network=settings.tool_network,
        resolve=GuardedAddresses(allow_private=settings.allow_private_urls).addresses,
        run_unconfined=settings.run_tools_unconfined,
        # Leases are renewed when a third of their time has passed, so two thirds are left when this process stops
        # renewing. Half a lease is shorter: the sandbox ends its tools before another process takes over the run.
        silence_seconds=settings.lease_seconds / 2,
    )


def _environments(settings: Settings, processes: ProcessToolbox) -> Environments:
    """A package index that the operator configured may have a private address; the default one may not."""
    allow_private = settings.allow_private_urls or settings.package_index is not None
    return Environments(
        settings.data_dir / "environments",
        processes.run_confined_command,
        resolve=GuardedAddresses(allow_private=allow_private).addresses,
        index=settings.package_index,
    )
