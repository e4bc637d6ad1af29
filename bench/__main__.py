"""The command line of the benchmarks: `python -m bench [name …] [--quick] [--database URL] [--save]`."""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import uvloop

from bench import (
    cancel,
    crowd,
    databases,
    full,
    growth,
    install,
    listing,
    log,
    memory,
    messages,
    older,
    sandbox,
    scaling,
    start,
    streams,
    tokens,
    tools,
    workers,
)
from bench.results import Row, table
from bench.sampling import Setting, load_said

Measure = Callable[[Setting], Awaitable[list[Row]]]

MEASURES: dict[str, Measure] = {
    "message": messages.measure,
    "tool": tools.measure,
    "sandbox": sandbox.measure,
    "crowd": crowd.measure,
    "growth": growth.measure,
    "full": full.measure,
    "databases": databases.measure,
    "memory": memory.measure,
    "start": start.measure,
    "cancel": cancel.measure,
    "log": log.measure,
    "workers": workers.measure,
    "scaling": scaling.measure,
    "tokens": tokens.measure,
    "streams": streams.measure,
    "older": older.measure,
    "listing": listing.measure,
    "install": install.measure,
}
SAVED = Path(__file__).parent / "results" / "latest.json"


async def run(names: list[str], setting: Setting) -> tuple[list[Row], list[str]]:
    """The rows, and the names of the benchmarks that failed; a failure does not stop the others."""
    rows: list[Row] = []
    broken: list[str] = []
    for name in names:
        began, before = time.monotonic(), load_said()
        try:
            rows += await MEASURES[name](setting)
        except Exception:
            traceback.print_exc()
            broken.append(name)
        print(f"{name}: {time.monotonic() - began:.0f} s, {before} before it", file=sys.stderr)
    return rows, broken


def save(rows: list[Row], setting: Setting, path: Path) -> None:
    facts = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "database": setting.database.partition(":")[0],
        "quick": setting.quick,
        "machine": f"{platform.platform()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "load_after": load_said(),
        "rows": [row.to_json() for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(facts, option=orjson.OPT_INDENT_2))
    print(f"\nWritten to {path}.", file=sys.stderr)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure Holdfast, side by side with a minimal proxy.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(MEASURES)}")
    parser.add_argument("--quick", action="store_true", help="fewer samples: seconds instead of minutes, less precise")
    parser.add_argument("--database", default="sqlite", help="sqlite, postgres (private ones), or a URL")
    parser.add_argument("--base", help="an older checkout, whose processes are measured beside ours (streams, older)")
    parser.add_argument("--save", action="store_true", help=f"write the numbers to {SAVED} instead of the temp folder")
    options = parser.parse_args()
    if unknown := set(options.names) - set(MEASURES):
        parser.error(f"There is no measure {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}.")
    return options


def main() -> int:
    """Exit code 0 if every limit is met, 1 if one is not, 2 if a benchmark failed."""
    options = arguments()
    names = [name for name in MEASURES if name in options.names or not options.names]
    setting = Setting(options.database, options.quick, options.base)
    gc.disable()  # a garbage collection here would be measured as the server's time
    rows, broken = uvloop.run(run(names, setting))
    print(table(rows))
    save(rows, setting, SAVED if options.save else Path(tempfile.gettempdir()) / "holdfast-bench.json")
    if broken:
        print(f"Not measured, see above: {', '.join(broken)}.", file=sys.stderr)
        return 2
    return 0 if all(row.verdict != "NOT HELD" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
