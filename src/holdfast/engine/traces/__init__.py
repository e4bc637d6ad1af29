"""Traces: what each model call sent and received, stored for some days, for people to read. Start with `tracing`."""
