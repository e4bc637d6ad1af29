"""Stores of what users create: agents, tools, blocks, conversations, archives, providers, MCP servers, approvals.

One store for each family; each implements a port of `ports.stores`. What runs write is in `storage.runs`.
"""
