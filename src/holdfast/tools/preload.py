"""Which modules a tool's zygote should have imported ahead of time, told by the imports in the tool's source.

Every call is a fork, and a fork pays for all that its zygote holds: pages to copy, to touch and to give back. So there
are two kinds of zygotes. A *plain* one holds what running a job takes, and most small tools need no more. A *full* one
holds besides what takes long to import (asyncio, pydantic, HTTP), for the tools that reach for such things.

`process` asks. A wrong guess costs a few milliseconds and changes nothing else: a module that is not there already is
imported in the cell, as ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

FULL = ("pydantic", "asyncio", "concurrent.futures", "decimal", "encodings.idna", "http.client", "urllib.request")
PLAIN: tuple[str, ...] = ()

# What a plain zygote has anyway, or what loads in it within about a millisecond.
# fmt: off
_NEAR = {
    "__future__", "abc", "array", "ast", "base64", "binascii", "bisect", "cmath", "collections", "contextlib",
    "copy", "csv", "ctypes", "dataclasses", "datetime", "enum", "errno", "fnmatch", "functools", "gc", "glob",
    "heapq", "inspect", "io", "itertools", "json", "keyword", "linecache", "math", "numbers", "operator", "os",
    "posixpath", "pprint", "random", "re", "resource", "select", "signal", "socket", "stat", "string", "struct",
    "sys", "textwrap", "time", "token", "tokenize", "traceback", "types", "typing", "unicodedata", "warnings",
    "wave", "weakref", "zlib",
}
# fmt: on
_IMPORT = re.compile(r"^[ \t]*(from|import)[ \t]+([^\n#;]*)", re.MULTILINE)
_ASYNC = re.compile(r"^[ \t]*async[ \t]+def[ \t]", re.MULTILINE)


def preload_for(source: str) -> tuple[str, ...]:
    far = _ASYNC.search(source) or any(module not in _NEAR for module in imported(source))
    return FULL if far else PLAIN


def imported(source: str) -> Iterator[str]:
    """The packages that the source's import statements name. A text that only looks like one counts too."""
    for kind, rest in _IMPORT.findall(source):
        for named in [rest] if kind == "from" else rest.split(","):
            if words := named.split():
                yield words[0].partition(".")[0]
