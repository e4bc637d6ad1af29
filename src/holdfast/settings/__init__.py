"""The environment, read once.

`cli` calls `Settings.from_environment(os.environ)` at start and hands the value to `app`. Every other room gets
the few plain values it needs as arguments; none imports this room. Nothing here touches disk, network or log.

How it works: `VARIABLES` in table.py has a row for each field. A row holds the variable's name, the other names it
answers to (a server that moves over from Letta keeps its environment), how its text is read and what it means.
The same table makes the values, the error messages and, through `describe`, the page in the docs. An empty
variable counts as unset, since that is how compose files pass on what nobody filled in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from holdfast.settings.reading import SettingsError
from holdfast.settings.table import VARIABLES
from holdfast.settings.together import LETTA_PG_PARTS, default_data_dir, letta_database, letta_password
from holdfast.settings.vendors import VENDOR_VARIABLES

__all__ = ["VARIABLES", "VENDOR_VARIABLES", "Description", "Settings", "SettingsError", "describe"]


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """What the operator chose. The defaults stand in `VARIABLES`: `Settings.from_environment({})` gives them."""

    host: str
    port: int
    data_dir: Path
    database_url: str
    redis_url: str | None
    password: str | None
    encryption_key: str | None
    openai_api_key: str | None
    openai_base_url: str | None
    anthropic_api_key: str | None
    anthropic_base_url: str | None
    gemini_api_key: str | None
    gemini_base_url: str | None
    exa_api_key: str | None
    exa_base_url: str | None
    vendors: Mapping[str, str]  # of all other vendors, by the names in settings/vendors.py
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
        values["vendors"] = {row.field: value for row in VENDOR_VARIABLES if (value := row.read(env)) is not None}
        return cls(**values)

    def provider_values(self) -> dict[str, str | None]:
        """What `providers.catalog.build` makes the server's own providers from."""
        fields = (f"{name}_{part}" for name in ("openai", "anthropic", "gemini") for part in ("api_key", "base_url"))
        return {**{field: getattr(self, field) for field in fields}, **self.vendors}

    def __repr__(self) -> str:
        """Safe to log: secrets are stars and URLs have lost their password."""
        shown = [f"{variable.field}={variable.show(getattr(self, variable.field))}" for variable in VARIABLES]
        named = {row.field: row for row in VENDOR_VARIABLES}
        shown += [f"{field}={named[field].show(value)}" for field, value in self.vendors.items()]
        return f"Settings({', '.join(shown)})"


class Description(NamedTuple):
    """One line of the settings page."""

    name: str
    aliases: tuple[str, ...]
    meaning: str
    default: str


def describe() -> list[Description]:
    """Every variable we answer to, for the docs and for `holdfast doctor`."""
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
