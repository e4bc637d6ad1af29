"""The rows of the background tasks in `engine.chores` and `engine.traces`: webhooks to deliver, traces, old events.

Checkpoints enqueue webhooks in their own transaction. Nothing here changes a run, but for the result of its callback.
"""
