"""Cancelling runs, wherever they are: driven here or elsewhere, waiting for a person, or queued."""
