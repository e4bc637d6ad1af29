"""Accepts runs and drives them: the I/O around the pure loop of `core`, with run logs, cancelling and takeover.

`core` decides what happens next, `storage` writes it; nothing here contains a rule of the loop or a line of SQL. Start
with `engine`, then `run.driver`.
"""
