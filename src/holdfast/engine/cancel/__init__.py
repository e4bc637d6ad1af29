"""Cancelling runs, wherever they are: driven here or elsewhere, waiting for a person, or queued.

A driver stops its own effects in `engine.run`; the routes find out which runs a request means.
"""
