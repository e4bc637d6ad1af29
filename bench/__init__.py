"""Benchmarks: latency, throughput, memory and size of Holdfast, measured side by side with a minimal proxy.

    make bench BASE=../base             all; BASE is a checkout of an older version, which some compare with
    python -m bench message crowd       only these
    python -m bench --quick --database postgres

Benchmarks are not in the distribution. Each is one file with a function `measure`; `__main__` lists them. `stage`
starts the processes, `proxy` is the baseline, `clients` sends requests to both, `sampling` interleaves and summarises
the samples, `results` compares them with their limits.
"""
