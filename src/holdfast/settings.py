"""The environment, read once.

`cli` calls `Settings.from_environment(os.environ)` at start and hands the value to `app`. Every other room gets
the few plain values it needs as arguments; none imports this file. Nothing here touches disk, network or log.

How it works: `VARIABLES` is one table with a row for each field. A row holds the variable's name, the other names
it answers to (a server that moves over from Letta keeps its environment), how its text is read and what it means.
The same table makes the values, the error messages and, through `describe`, the page in the docs. An empty
variable counts as unset, since that is how compose files pass on what nobody filled in.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlsplit


class SettingsError(Exception):
    """The operator must change a variable; the text says which one and what it should be."""


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """What the operator chose. The defaults stand in `VARIABLES`: `Settings.from_environment({})` gives them."""

    host: str
    port: int
    data_dir: Path
    database_url: str
    redis_url: str | None
    password: str | None
    openai_api_key: str | None
    openai_base_url: str | None
    anthropic_api_key: str | None
    anthropic_base_url: str | None
    gemini_api_key: str | None
    gemini_base_url: str | None
    lease_seconds: float
    tool_timeout_seconds: float
    event_retention_days: int
    max_body_bytes: int
    webhook_secret: str | None
    approvals_webhook: str | None
    allow_private_urls: bool
    log_level: str
    demo: bool

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        values: dict[str, Any] = {variable.field: variable.read(env) for variable in VARIABLES}
        values["data_dir"] = (values["data_dir"] or _default_data_dir(env)).absolute()
        values["database_url"] = (
            values["database_url"] or _letta_database(env) or f"sqlite:///{values['data_dir']}/holdfast.db"
        )
        values["password"] = values["password"] or _letta_password(env)
        return cls(**values)

    def __repr__(self) -> str:
        """Safe to log: secrets are stars and URLs have lost their password."""
        shown = (f"{variable.field}={variable.show(getattr(self, variable.field))}" for variable in VARIABLES)
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
        *(Description(row.name, row.aliases, row.meaning, row.default_shown or row.default) for row in VARIABLES),
        *(Description(name, (), in_parts, "5432" if name == "LETTA_PG_PORT" else "") for name in LETTA_PG_PARTS),
        Description("LETTA_SERVER_SECURE", (), "Whether LETTA_SERVER_PASSWORD counts.", "false"),
        Description("LETTA_SERVER_PASSWORD", (), "The password, if LETTA_SERVER_SECURE is true.", ""),
    ]


# -- what a row is ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reader:
    """Turns a text into a value, or into None when the text is not one; then 'expected …' tells what would be."""

    parse: Callable[[str], object | None]
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One row: which variable fills `Settings.<field>`. An empty default leaves the field None."""

    field: str
    name: str
    aliases: tuple[str, ...] = ()
    reader: Reader
    meaning: str
    default: str = ""
    default_shown: str = ""  # for a default that is worked out and not a fixed text
    secret: bool = False

    def read(self, env: Mapping[str, str]) -> object | None:
        for name in (self.name, *self.aliases):
            if text := env.get(name, "").strip():
                return self._value(name, text)
        return self._value(self.name, self.default) if self.default else None

    def _value(self, name: str, text: str) -> object:
        value = self.reader.parse(text)
        if value is None:
            raise SettingsError(f"{name} is {self.show(text)}; expected {self.reader.expected}.")
        return value

    def show(self, value: object) -> str:
        if self.secret and value is not None:
            return "'***'"
        if isinstance(value, str):
            return repr(re.sub(r"(?<=://)([^:/@]*):.*@|(?<=password=)[^&]*", _stars, value))
        return repr(str(value)) if isinstance(value, Path) else repr(value)


def _stars(found: re.Match[str]) -> str:
    return "***" if found[1] is None else f"{found[1]}:***@"


# -- how a text is read -------------------------------------------------------------------------------------------

BOOLEANS = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
LOG_LEVELS = ("debug", "info", "warning", "error")


def _whole_number(low: int, high: int) -> Reader:
    def parse(text: str) -> int | None:
        try:
            number = int(text)
        except ValueError:
            return None
        return number if low <= number <= high else None

    return Reader(parse, f"a whole number from {low} to {high}")


def _number(low: float, high: float) -> Reader:
    def parse(text: str) -> float | None:
        try:
            number = float(text)
        except ValueError:
            return None
        return number if low <= number <= high else None

    return Reader(parse, f"a number from {low:g} to {high:g}")


def _url(*schemes: str) -> Reader:
    def parse(text: str) -> str | None:
        try:
            url = urlsplit(text)
        except ValueError:  # for instance an IPv6 address that is never closed
            return None
        return text.rstrip("/") if url.scheme in schemes and (url.netloc or url.path.strip("/")) else None

    return Reader(parse, "a URL that starts with " + " or ".join(f"{scheme}://" for scheme in schemes))


def _parse_database_url(text: str) -> str | None:
    """Drops the driver from the scheme (postgresql+asyncpg://): which driver is used is for storage to know."""
    match = re.fullmatch(r"(postgres|postgresql|sqlite)(?:\+\w+)?://(.*)", text)
    if match is None:
        return None
    return f"{'sqlite' if match[1] == 'sqlite' else 'postgresql'}://{match[2]}"


TEXT = Reader(lambda text: None if re.search(r"\s", text) else text, "a text without blanks or line breaks")
ANY_TEXT = Reader(lambda text: text, "a text")
FOLDER = Reader(lambda text: Path(text).expanduser(), "a folder")
SWITCH = Reader(lambda text: BOOLEANS.get(text.lower()), "true or false")
LOG_LEVEL = Reader(lambda text: text.lower() if text.lower() in LOG_LEVELS else None, "one of " + ", ".join(LOG_LEVELS))
HTTP_URL = _url("http", "https")
DATABASE_URL = Reader(_parse_database_url, "postgresql://user:password@host:5432/name or sqlite:////path/to/file.db")


# -- the table ----------------------------------------------------------------------------------------------------

VARIABLES: tuple[Variable, ...] = (
    Variable(
        field="host",
        name="HOLDFAST_HOST",
        reader=TEXT,
        default="127.0.0.1",
        meaning="The address to listen on. 0.0.0.0 lets other machines in: set a password first.",
    ),
    Variable(
        field="port",
        name="HOLDFAST_PORT",
        reader=_whole_number(0, 65535),
        default="8283",
        meaning="The port to listen on; 0 takes any free one.",
    ),
    Variable(
        field="data_dir",
        name="HOLDFAST_DATA_DIR",
        reader=FOLDER,
        default_shown="$XDG_DATA_HOME/holdfast or ~/.local/share/holdfast",
        meaning="The folder for everything kept on disk. `make run` uses ./data.",
    ),
    Variable(
        field="database_url",
        name="HOLDFAST_DATABASE",
        aliases=("HOLDFAST_DATABASE_URL", "LETTA_PG_URI"),
        reader=DATABASE_URL,
        default_shown="sqlite, in holdfast.db in the data folder",
        meaning="The database: postgresql://… or sqlite:///…; a driver in the scheme is ignored.",
    ),
    Variable(
        field="redis_url",
        name="HOLDFAST_REDIS_URL",
        reader=_url("redis", "rediss", "unix"),
        meaning="A Redis that will carry live events between several servers. Not used yet.",
    ),
    Variable(
        field="password",
        name="HOLDFAST_PASSWORD",
        reader=ANY_TEXT,
        secret=True,
        meaning="What clients must send as bearer token. Unset: whoever reaches the port may do anything.",
    ),
    Variable(
        field="openai_api_key",
        name="OPENAI_API_KEY",
        reader=TEXT,
        secret=True,
        meaning="The key for OpenAI, or for what stands at OPENAI_BASE_URL.",
    ),
    Variable(
        field="openai_base_url",
        name="OPENAI_BASE_URL",
        aliases=("OPENAI_API_BASE",),
        reader=HTTP_URL,
        default_shown="OpenAI's own",
        meaning="An OpenAI-compatible server to use in OpenAI's place, up to and with its /v1.",
    ),
    Variable(
        field="anthropic_api_key",
        name="ANTHROPIC_API_KEY",
        reader=TEXT,
        secret=True,
        meaning="The key for Anthropic.",
    ),
    Variable(
        field="anthropic_base_url",
        name="ANTHROPIC_BASE_URL",
        reader=HTTP_URL,
        default_shown="Anthropic's own",
        meaning="A server to use in Anthropic's place.",
    ),
    Variable(
        field="gemini_api_key",
        name="GEMINI_API_KEY",
        reader=TEXT,
        secret=True,
        meaning="The key for Google's Gemini. Not used yet.",
    ),
    Variable(
        field="gemini_base_url",
        name="GEMINI_BASE_URL",
        reader=HTTP_URL,
        default_shown="Google's own",
        meaning="A server to use in Gemini's place. Not used yet.",
    ),
    Variable(
        field="lease_seconds",
        name="HOLDFAST_LEASE_SECONDS",
        reader=_number(0.1, 3600),
        default="10",
        meaning="How long a worker that died may hold a run before another takes it up.",
    ),
    Variable(
        field="tool_timeout_seconds",
        name="HOLDFAST_TOOL_TIMEOUT_SECONDS",
        aliases=("TOOL_SANDBOX_TIMEOUT",),
        reader=_number(0.1, 86_400),
        default="180",
        meaning="How long one call of a tool may take.",
    ),
    Variable(
        field="event_retention_days",
        name="HOLDFAST_EVENT_RETENTION_DAYS",
        reader=_whole_number(1, 36_500),
        default="7",
        meaning="How many days the stream of a finished run can still be replayed.",
    ),
    Variable(
        field="max_body_bytes",
        name="HOLDFAST_MAX_BODY_BYTES",
        reader=_whole_number(1024, 1 << 30),
        default=str(32 << 20),
        meaning="The largest request body that is read.",
    ),
    Variable(
        field="webhook_secret",
        name="HOLDFAST_WEBHOOK_SECRET",
        reader=TEXT,
        secret=True,
        meaning="What webhooks are signed with (Standard Webhooks), best as whsec_ and base64. Unset: not signed.",
    ),
    Variable(
        field="approvals_webhook",
        name="HOLDFAST_APPROVALS_WEBHOOK",
        reader=TEXT,
        meaning="A URL that is told of every call that begins to wait for a human, and of every one that is decided.",
    ),
    Variable(
        field="allow_private_urls",
        name="HOLDFAST_ALLOW_PRIVATE_URLS",
        reader=SWITCH,
        default="false",
        meaning="Whether URLs given by users may lead inside: to loopback, private networks or cloud metadata.",
    ),
    Variable(
        field="log_level",
        name="HOLDFAST_LOG_LEVEL",
        reader=LOG_LEVEL,
        default="info",
        meaning="How much is logged: " + ", ".join(LOG_LEVELS) + ".",
    ),
    Variable(
        field="demo",
        name="HOLDFAST_DEMO",
        reader=SWITCH,
        default="true",
        meaning="Whether an empty server starts with a demo agent, which needs no key.",
    ),
)


# -- what takes more than one variable ----------------------------------------------------------------------------

LETTA_PG_PARTS = ("LETTA_PG_HOST", "LETTA_PG_PORT", "LETTA_PG_DB", "LETTA_PG_USER", "LETTA_PG_PASSWORD")


def _default_data_dir(env: Mapping[str, str]) -> Path:
    if shared := env.get("XDG_DATA_HOME", "").strip():
        return Path(shared) / "holdfast"
    home = env.get("HOME", "").strip()
    return (Path(home) if home else Path.home()) / ".local/share/holdfast"


def _letta_database(env: Mapping[str, str]) -> str | None:
    """Half a set is an error: falling back to SQLite would look as if every agent had been lost."""
    host, port, database, user, password = (env.get(name, "").strip() for name in LETTA_PG_PARTS)
    if not any((host, port, database, user, password)):
        return None
    if missing := [name for name in LETTA_PG_PARTS if not env.get(name, "").strip() and name != "LETTA_PG_PORT"]:
        raise SettingsError(
            f"Some of {', '.join(LETTA_PG_PARTS)} are set, but not {', '.join(missing)}. "
            "Set these too, or give the whole database as HOLDFAST_DATABASE."
        )
    if _whole_number(1, 65535).parse(port or "5432") is None:
        raise SettingsError(f"LETTA_PG_PORT is {port!r}; expected a whole number from 1 to 65535.")
    who = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return f"postgresql://{who}@{host}:{port or '5432'}/{quote(database, safe='')}"


def _letta_password(env: Mapping[str, str]) -> str | None:
    secure = env.get("LETTA_SERVER_SECURE", "").strip() or "false"
    match BOOLEANS.get(secure.lower()):
        case None:
            raise SettingsError(f"LETTA_SERVER_SECURE is {secure!r}; expected {SWITCH.expected}.")
        case False:
            return None
        case True if password := env.get("LETTA_SERVER_PASSWORD", "").strip():
            return password
    raise SettingsError(
        "LETTA_SERVER_SECURE is true, but there is no password. Set HOLDFAST_PASSWORD (or LETTA_SERVER_PASSWORD)."
    )
