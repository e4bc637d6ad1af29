"""The command `python -m simulator`: plays many histories, or one that is printed step by step."""

from __future__ import annotations

import argparse
import sys

from simulator.many import play_many, quietly
from simulator.play import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description="Play histories of the engine, from one seed on.")
    parser.add_argument(
        "--seed", type=int, default=None, help="the first history; if it is the only one, it is printed step by step"
    )
    parser.add_argument("--histories", type=int, default=None, help="how many to play")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    if given.seed is not None and given.histories is None:
        with quietly():
            told = play(given.seed, show=print)
        print(told)
        return 1 if told.broken else 0
    summary = play_many(given.seed or 0, given.histories or 20_000, given.workers)
    print(summary.text())
    for told in summary.broken[:20]:
        print(f"seed {told.seed}: {told.broken}\n  replay it with: make sim SEED={told.seed}")
    return 1 if summary.broken else 0


if __name__ == "__main__":
    sys.exit(main())
