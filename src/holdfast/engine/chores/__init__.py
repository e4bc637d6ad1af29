"""Background tasks of a process, repeated until it shuts down: approval expiry, webhooks, retention.

Nothing here drives a run, and no run waits for anything here.
"""
