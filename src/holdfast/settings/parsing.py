"""Parses one environment variable: the row that describes it, and the readers that turn its text into a value."""

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


class SettingsError(Exception):
    """A variable has a bad value; the text says which one and what is expected."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Turns a text into a value, or None if it is invalid; `expected` says what a valid text is."""

    parse: Callable[[str], object | None]
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One row of the table: the variable for `Settings.<field>`. With an empty default, an unset field is None."""

    field: str
    name: str
    aliases: tuple[str, ...] = ()
    reader: Reader
    meaning: str
    default: str = ""
    default_shown: str = ""  # what the docs show for a default that is computed
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
            return repr(re.sub(r"(?<=://)([^:/@]*):.*@|(?<=password=)[^&]*", _masked, value))
        return repr(str(value)) if isinstance(value, Path) else repr(value)


def _masked(found: re.Match[str]) -> str:
    return "***" if found[1] is None else f"{found[1]}:***@"


# -- readers ------------------------------------------------------------------------------------------------------

BOOLEANS = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
LOG_LEVELS = ("debug", "info", "warning", "error")


def whole_number(low: int, high: int) -> Reader:
    def parse(text: str) -> int | None:
        try:
            number = int(text)
        except ValueError:
            return None
        return number if low <= number <= high else None

    return Reader(parse, f"a whole number from {low} to {high}")


def number(low: float, high: float) -> Reader:
    def parse(text: str) -> float | None:
        try:
            number = float(text)
        except ValueError:
            return None
        return number if low <= number <= high else None

    return Reader(parse, f"a number from {low:g} to {high:g}")


def url(*schemes: str) -> Reader:
    def parse(text: str) -> str | None:
        try:
            url = urlsplit(text)
        except ValueError:  # for instance an IPv6 address without its closing bracket
            return None
        return text.rstrip("/") if url.scheme in schemes and (url.netloc or url.path.strip("/")) else None

    return Reader(parse, "a URL that starts with " + " or ".join(f"{scheme}://" for scheme in schemes))


def _parse_database_url(text: str) -> str | None:
    """Drops the driver from the scheme (postgresql+asyncpg://); storage chooses the driver."""
    match = re.fullmatch(r"(postgres|postgresql|sqlite)(?:\+\w+)?://(.*)", text)
    if match is None:
        return None
    return f"{'sqlite' if match[1] == 'sqlite' else 'postgresql'}://{match[2]}"


def choice(*names: str) -> Reader:
    return Reader(lambda text: text.lower() if text.lower() in names else None, "one of " + ", ".join(names))


def _parse_signing_secret(text: str) -> str | None:
    """A secret with the prefix `whsec_` must be valid base64, or receivers could not verify signatures."""
    if re.search(r"\s", text):
        return None
    if not text.startswith("whsec_"):
        return text
    try:
        key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        return None
    return text if key else None


def _parse_folders(text: str) -> tuple[Path, ...] | None:
    folders = tuple(Path(part).expanduser() for part in text.split(os.pathsep) if part.strip())
    return folders if folders and all(folder.is_absolute() for folder in folders) else None


def _parse_origins(text: str) -> tuple[str, ...] | None:
    """Origins as browsers send them: in lower case, without a path, without the default port."""
    parts = (part.strip().lower().removesuffix("/") for part in text.split(",") if part.strip())
    origins = tuple(re.sub(r"^(http://.*):80$|^(https://.*):443$", r"\1\2", part) for part in parts)
    return origins if origins and all(part == "*" or _ORIGIN.fullmatch(part) for part in origins) else None


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:]+\]|[a-z0-9_.-]+)(:\d{1,5})?")


TEXT = Reader(lambda text: None if re.search(r"\s", text) else text, "a text without blanks or line breaks")
ANY_TEXT = Reader(lambda text: text, "a text")
FOLDER = Reader(lambda text: Path(text).expanduser(), "a folder")
SIGNING_SECRET = Reader(
    _parse_signing_secret,
    "whsec_ and the key in base64, or a text without blanks that does not begin with whsec_",
)
SWITCH = Reader(lambda text: BOOLEANS.get(text.lower()), "true or false")
FOLDERS = Reader(_parse_folders, "absolute paths of folders, with a colon between them")
ORIGINS = Reader(_parse_origins, "origins like https://app.example.com or http://localhost:3000, separated by commas")
LOG_LEVEL = choice(*LOG_LEVELS)
HTTP_URL = url("http", "https")
DATABASE_URL = Reader(_parse_database_url, "postgresql://user:password@host:5432/name or sqlite:////path/to/file.db")
