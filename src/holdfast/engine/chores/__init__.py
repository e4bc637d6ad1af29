"""Work beside the runs, repeated as long as the server lives: expiry, webhooks, retention, traces."""
