"""Accepts runs and drives them: the I/O around the pure loop of `core`, with run logs, cancelling and takeover."""
