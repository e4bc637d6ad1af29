"""Everything that can carry out a tool's call, joined into one toolbox: processes, built-ins, packages, MCP servers."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.outbound.client import GuardedClient
from holdfast.outbound.resolving import GuardedAddresses
from holdfast.ports.clock import Clock
from holdfast.ports.sealing import Sealer
from holdfast.ports.toolbox import Toolbox
from holdfast.settings import Settings
from holdfast.storage.archives import SqlArchives
from holdfast.storage.database import Database
from holdfast.storage.mcp_servers import SqlMcpServers
from holdfast.storage.search import SqlMessageSearch
from holdfast.tools.builtins import Builtins, ByKind
from holdfast.tools.environments import Environments, WithPackages
from holdfast.tools.mcp.toolbox import McpToolbox
from holdfast.tools.process import ProcessToolbox
from holdfast.tools.recall import Recall
from holdfast.tools.web import Web


@dataclass(frozen=True, slots=True)
class Tooling:
    """One toolbox for runs, and two of its parts that others ask as well."""

    toolbox: Toolbox
    processes: ProcessToolbox
    mcp: McpToolbox


def tooling(settings: Settings, database: Database, sealer: Sealer, outbound: GuardedClient, clock: Clock) -> Tooling:
    processes = process_toolbox(settings)
    mcp = McpToolbox(
        SqlMcpServers(database),
        sealer,
        GuardedAddresses(allow_private=settings.allow_private_urls),
        connect_seconds=settings.mcp_timeout_seconds,
        stdio=settings.mcp_stdio_unsandboxed,
    )
    recall = Recall(SqlMessageSearch(database), SqlArchives(database), clock)
    own = Builtins(recall, Web(outbound, settings.exa_api_key, settings.exa_base_url), processes, clock)
    toolbox = ByKind(own, WithPackages(processes, _environments(settings, processes)), mcp, sealer)
    return Tooling(toolbox, processes, mcp)


def process_toolbox(settings: Settings) -> ProcessToolbox:
    """Where tools with source code run. `holdfast doctor` asks the same one how well it can confine them."""
    return ProcessToolbox(
        hidden=[settings.data_dir],
        writable=settings.tool_folders or (),
        network=settings.tool_network,
        resolve=GuardedAddresses(allow_private=settings.allow_private_urls).addresses,
        run_unconfined=settings.run_tools_unconfined,
        silence_seconds=settings.lease_seconds / 2,  # a lease has two thirds left when nobody renews it any more
    )


def _environments(settings: Settings, processes: ProcessToolbox) -> Environments:
    """An index that the operator named may be inside; any other is reached as everything outside is."""
    allow_private = settings.allow_private_urls or settings.package_index is not None
    return Environments(
        settings.data_dir / "environments",
        processes.run_jailed,
        resolve=GuardedAddresses(allow_private=allow_private).addresses,
        index=settings.package_index,
    )
