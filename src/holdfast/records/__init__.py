"""The records that users create and change: agents, tools, blocks, archives, conversations, providers, MCP servers.

The rules, defaults and checks for them belong here. Rows are read and written through `ports`; nothing here runs an
agent, and nothing knows HTTP.
"""
