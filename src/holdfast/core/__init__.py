"""The domain: plain values and pure functions that decide what a run does next.

Values (messages, records, run state), the agent loop, its limits and its error types belong here. Nothing here reads
the clock, makes ids, does I/O or imports another package of Holdfast.
"""
