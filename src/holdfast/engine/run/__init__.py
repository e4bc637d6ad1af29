"""A run from acceptance to its end: accept, drive, take over. Start with `driver`.

`core` decides what a run does next; this package performs it. What clients see of a run belongs in `engine.stream`.
"""
