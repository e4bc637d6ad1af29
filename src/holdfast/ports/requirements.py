"""The packages a tool asks for, read strictly: names with versions, and nothing an installer could take for more.

No URL, path, option, version control address or marker gets through: those would let a tool's author choose where code
comes from. What passes is written in one form, so that equal wishes share one environment.
"""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

MOST_REQUIREMENTS = 50
LONGEST = 200


def requirement_text(name: str, version: str | None) -> str:
    """`name` may hold a whole requirement; a bare `version` means exactly that one. Raises ValueError that says why."""
    said = name.strip() + _specifier(version)
    if len(said) > LONGEST:
        raise ValueError(f"a requirement may have at most {LONGEST} characters")
    try:
        read = Requirement(said)
    except InvalidRequirement:
        raise ValueError(f"{said!r} is not a requirement; write a package's name, as in pandas, or pandas>=2") from None
    if read.url is not None:
        raise ValueError(f"{said!r} names an address; only packages from the configured index can be installed")
    if read.marker is not None:
        raise ValueError(f"{said!r} holds a marker; leave out what stands after the semicolon")
    extras = f"[{','.join(sorted(read.extras))}]" if read.extras else ""
    return f"{canonicalize_name(read.name)}{extras}{read.specifier}"


def _specifier(version: str | None) -> str:
    if version is None or not version.strip():
        return ""
    version = version.strip()
    return f"=={version}" if version[0].isalnum() else version
