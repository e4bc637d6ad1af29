"""Settings made from several variables: the data folder, and the database and password of a Letta environment."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from holdfast.settings.parsing import BOOLEANS, SWITCH, SettingsError, whole_number

LETTA_PG_PARTS = ("LETTA_PG_HOST", "LETTA_PG_PORT", "LETTA_PG_DB", "LETTA_PG_USER", "LETTA_PG_PASSWORD")


def default_data_dir(env: Mapping[str, str]) -> Path:
    if shared := env.get("XDG_DATA_HOME", "").strip():
        return Path(shared) / "holdfast"
    home = env.get("HOME", "").strip()
    return (Path(home) if home else Path.home()) / ".local/share/holdfast"


def letta_database(env: Mapping[str, str]) -> str | None:
    """The database URL made from its parts. An incomplete set is an error: SQLite instead would hide every agent."""
    host, port, database, user, password = (env.get(name, "").strip() for name in LETTA_PG_PARTS)
    if not any((host, port, database, user, password)):
        return None
    if missing := [name for name in LETTA_PG_PARTS if not env.get(name, "").strip() and name != "LETTA_PG_PORT"]:
        raise SettingsError(
            f"Some of {', '.join(LETTA_PG_PARTS)} are set, but not {', '.join(missing)}. "
            "Set these too, or give the whole database as HOLDFAST_DATABASE."
        )
    if whole_number(1, 65535).parse(port or "5432") is None:
        raise SettingsError(f"LETTA_PG_PORT is {port!r}; expected a whole number from 1 to 65535.")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return f"postgresql://{login}@{host}:{port or '5432'}/{quote(database, safe='')}"


def letta_password(env: Mapping[str, str]) -> str | None:
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
