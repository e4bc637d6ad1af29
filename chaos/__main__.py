"""The command `python -m chaos`: runs the kill test on one database or both."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter

from chaos.storm import Plan, Report, run_kill_test


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make chaos", description="Kill servers under load, then check that nothing is lost."
    )
    parser.add_argument("--kills", type=int, default=100, help="on each database")
    parser.add_argument("--database", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--people", type=int, default=100)
    parser.add_argument("--servers", type=int, default=2, help="on Postgres; SQLite has one")
    parser.add_argument("--workers", type=int, default=1, help="on Postgres")
    parser.add_argument("--pause", type=float, default=2.0, help="the longest pause between two faults, in seconds")
    parser.add_argument("--slowest", type=int, default=150, help="what the slowest model takes for a word, in ms")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--storms", type=int, default=1, help="one after the other, each with the next seed")
    given = parser.parse_args()
    databases = ("sqlite", "postgres") if given.database == "both" else (given.database,)
    reports = []
    for number in range(given.storms):
        for database in databases:
            plan = Plan(
                database=database,
                kills=given.kills,
                people=given.people,
                servers=given.servers,
                workers=given.workers,
                pause_seconds=given.pause,
                slowest=given.slowest,
                seed=given.seed + number,
            )
            reports.append(asyncio.run(run_kill_test(plan)))
            print(reports[-1].text(), flush=True)
    if given.storms > 1:
        print(_total(reports))
    return 1 if any(report.wrong for report in reports) else 0


def _total(reports: list[Report]) -> str:
    sums: Counter[str] = Counter()
    for report in reports:
        sums.update(report.done)
        sums.update(report.counted)
    del sums["most runs at once"]
    broken = sum(len(report.wrong) for report in reports)
    lines = [f"{len(reports)} storms", *(f"  {count:8} {name}" for name, count in sorted(sums.items()))]
    return "\n".join([*lines, f"  {broken:8} broken promises"])


if __name__ == "__main__":
    sys.exit(main())
