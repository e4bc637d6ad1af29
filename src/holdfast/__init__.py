"""Holdfast: a server for stateful agents that can be held, stopped and resumed, and lose nothing."""

__version__ = "0.1.0"
