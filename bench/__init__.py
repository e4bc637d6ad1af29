"""The numbers of the design (section 7), measured side by side with a bare proxy in one run.

    make bench                          all but the slow ones
    python -m bench message crowd       only these
    python -m bench listing install     the slow ones, only by name
    python -m bench --quick --database postgres

Nothing of this ships. Each measure is one file with a function `measure`; `__main__` lists them. `stage` starts the
processes, `proxy` is the floor, `clients` speaks to both, `sampling` interleaves and summarises, `results` judges.
"""
