"""Reads all settings from environment variables, once at start.

`cli` calls `Settings.from_environment(os.environ)` and passes the value to `app`. All other packages get the few plain
values they need as arguments and never import this one. Nothing here touches disk, network or log.

`VARIABLES` in table.py has a row for each field: the variable's name, its aliases (so that a server migrated from Letta
keeps its environment), how its text is parsed and what it means. The values, the error messages and, through
`describe`, docs/settings.md are made from that table. An empty variable counts as unset, since compose files pass on
unset variables as empty ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from holdfast.settings.letta_compat import LETTA_PG_PARTS, default_data_dir, letta_database, letta_password
from holdfast.settings.parsing import SettingsError
from holdfast.settings.table import VARIABLES
from holdfast.settings.vendors import VENDOR_VARIABLES

__all__ = ["VARIABLES", "VENDOR_VARIABLES", "Description", "Settings", "SettingsError", "describe"]


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """The operator's settings. `VARIABLES` has the defaults: `Settings.from_environment({})` returns them."""

    host: str
    port: int
    data_dir: Path
    database_url: str
    redis_url: str | None
    password: str | None
    cors_origins: tuple[str, ...] | None
    encryption_key: str | None
    openai_api_key: str | None
    openai_base_url: str | None
    anthropic_api_key: str | None
    anthropic_base_url: str | None
    gemini_api_key: str | None
    gemini_base_url: str | None
    exa_api_key: str | None
    exa_base_url: str | None
    vendors: Mapping[str, str]  # values of all other vendors, by field name in settings/vendors.py
    lease_seconds: float
    database_connections: int
    most_runs: int
    most_unfinished: int
    most_queued: int
    shutdown_seconds: float
    tool_timeout_seconds: float
    package_index: str | None
    mcp_timeout_seconds: float
    mcp_stdio_unsandboxed: bool
    tool_network: Literal["none", "public", "full"]
    tool_folders: tuple[Path, ...] | None
    run_tools_unconfined: bool
    compact_at: float
    run_max_tokens: int
    run_max_cost_usd: float
    run_max_seconds: float
    run_max_repeats: int
    event_retention_days: int
    trace_retention_days: int
    max_body_bytes: int
    request_head_seconds: float
    request_body_seconds: float
    most_connections: int
    webhook_secret: str | None
    approvals_webhook: str | None
    allow_private_urls: bool
    log_level: str
    demo: bool

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        values: dict[str, Any] = {variable.field: variable.read(env) for variable in VARIABLES}
        values["data_dir"] = (values["data_dir"] or default_data_dir(env)).absolute()
        values["database_url"] = (
            values["database_url"] or letta_database(env) or f"sqlite:///{values['data_dir']}/holdfast.db"
        )
        values["password"] = values["password"] or letta_password(env)
        if "*" in (values["cors_origins"] or ()) and values["password"] is None:
            raise SettingsError(
                "HOLDFAST_CORS_ORIGINS is '*', which lets every web page in; set HOLDFAST_PASSWORD too, or name "
                "the origins."
            )
        values["vendors"] = {row.field: value for row in VENDOR_VARIABLES if (value := row.read(env)) is not None}
        return cls(**values)

    def provider_values(self) -> dict[str, str | None]:
        """The values from which `providers.factory.build` makes the server's own providers."""
        fields = (f"{name}_{part}" for name in ("openai", "anthropic", "gemini") for part in ("api_key", "base_url"))
        return {**{field: getattr(self, field) for field in fields}, **self.vendors}

    def __repr__(self) -> str:
        """Safe to log: secrets, and passwords in URLs, are replaced by stars."""
        shown = [f"{variable.field}={variable.show(getattr(self, variable.field))}" for variable in VARIABLES]
        named = {row.field: row for row in VENDOR_VARIABLES}
        shown += [f"{field}={named[field].show(value)}" for field, value in self.vendors.items()]
        return f"Settings({', '.join(shown)})"


class Description(NamedTuple):
    """One row of docs/settings.md."""

    name: str
    aliases: tuple[str, ...]
    meaning: str
    default: str


def describe() -> list[Description]:
    """Every variable that is read, for docs/settings.md."""
    in_parts = "The database in parts, when it is not given as one URL."
    return [
        *(
            Description(row.name, row.aliases, row.meaning, row.default_shown or row.default)
            for row in (*VARIABLES, *VENDOR_VARIABLES)
        ),
        *(Description(name, (), in_parts, "5432" if name == "LETTA_PG_PORT" else "") for name in LETTA_PG_PARTS),
        Description("LETTA_SERVER_SECURE", (), "Whether LETTA_SERVER_PASSWORD counts.", "false"),
        Description("LETTA_SERVER_PASSWORD", (), "The password, if LETTA_SERVER_SECURE is true.", ""),
    ]
