"""Parses the Python packages that a tool requires: names with versions, and nothing else that an installer accepts.

URLs, paths, options, version control addresses and markers are refused: they would let a tool's author choose where
code comes from. The result is normalised, so that equal requirements share one environment.
"""

from __future__ import annotations

MOST_REQUIREMENTS = 50
LONGEST = 200


def requirement_text(name: str, version: str | None) -> str:
    """The normalised requirement. `name` may be a whole requirement; a bare `version` means exactly that version.
    Raises ValueError, which says what is wrong."""
    said = name.strip() + _specifier(version)
    if len(said) > LONGEST:
        raise ValueError(f"a requirement may have at most {LONGEST} characters")
    # Imported only when needed: few tools require packages, and every start would wait ten milliseconds for it.
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

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
