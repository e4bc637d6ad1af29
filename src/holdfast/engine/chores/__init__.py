"""Background tasks of a process, repeated until it shuts down: approval expiry, webhooks, retention."""
