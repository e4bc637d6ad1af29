"""Choose which modules a tool's zygote imports ahead of time, from the imports in the tool's source.

Every call is a fork, and a fork pays for everything that its zygote has loaded: pages to copy, to touch and to free. So
there are two kinds of zygotes. A *plain* one has loaded only what running a job needs, which is enough for most small
tools. A *full* one has also loaded modules that are slow to import (asyncio, pydantic, HTTP).

`process_toolbox` calls this. A wrong guess costs a few milliseconds and changes nothing else: a module that is not
loaded is imported in the cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

FULL = (
    "pydantic.main",
    "pydantic.fields",
    "asyncio",
    "concurrent.futures",
    "decimal",
    "encodings.idna",
    "importlib.metadata",
    "http.client",
    "urllib.request",
)
PLAIN: tuple[str, ...] = ()

# Modules that a plain zygote has already loaded, or that load in about a millisecond.
# fmt: off
_CHEAP_MODULES = {
    "__future__", "abc", "array", "ast", "base64", "binascii", "bisect", "cmath", "collections", "contextlib",
    "copy", "csv", "ctypes", "dataclasses", "datetime", "enum", "errno", "fnmatch", "fcntl", "functools", "gc", "glob",
    "heapq", "inspect", "io", "itertools", "json", "keyword", "linecache", "math", "mmap", "numbers", "operator", "os",
    "posixpath", "pprint", "random", "re", "resource", "select", "signal", "socket", "stat", "string", "struct",
    "sys", "textwrap", "time", "token", "tokenize", "traceback", "types", "typing", "unicodedata", "warnings",
    "wave", "weakref", "zlib",
}
# fmt: on
MAX_CHARACTERS_READ = 64 * 1024  # imports are usually at the top, and a wrong guess costs only milliseconds
_IMPORT = re.compile(r"^[ \t]*(from|import)[ \t]+([^\n#;]*)", re.MULTILINE)
_ASYNC = re.compile(r"^[ \t]*async[ \t]+def[ \t]", re.MULTILINE)


def preload_for(source: str) -> tuple[str, ...]:
    source = source[:MAX_CHARACTERS_READ]
    needs_full = _ASYNC.search(source) or any(module not in _CHEAP_MODULES for module in imported_packages(source))
    return FULL if needs_full else PLAIN


def imported_packages(source: str) -> Iterator[str]:
    """The top-level packages that import statements in the source name. Text that looks like one, as in a string,
    counts too.
    """
    for kind, rest in _IMPORT.findall(source):
        for named in [rest] if kind == "from" else rest.split(","):
            if words := named.split():
                yield words[0].partition(".")[0]
