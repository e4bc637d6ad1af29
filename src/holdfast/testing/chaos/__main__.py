"""`python -m holdfast.testing.chaos`: the kill test, on one database or both."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from holdfast.testing.chaos.storm import Plan, rage


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description="Kill servers under load and look what is left.")
    parser.add_argument("--kills", type=int, default=100, help="on each database")
    parser.add_argument("--database", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--people", type=int, default=100)
    parser.add_argument("--servers", type=int, default=2, help="on Postgres; SQLite has one")
    parser.add_argument("--workers", type=int, default=1, help="on Postgres")
    parser.add_argument("--pause", type=float, default=2.0, help="the longest pause between two faults, in seconds")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    given = parser.parse_args()
    databases = ("sqlite", "postgres") if given.database == "both" else (given.database,)
    failed = False
    for database in databases:
        plan = Plan(
            database=database,
            kills=given.kills,
            people=given.people,
            servers=given.servers,
            workers=given.workers,
            pause_seconds=given.pause,
            seed=given.seed,
        )
        report = asyncio.run(rage(plan))
        print(report.text(), flush=True)
        failed = failed or bool(report.wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
