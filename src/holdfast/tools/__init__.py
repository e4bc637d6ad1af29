"""The tools of agents: built-in tools, tools of MCP servers, and users' source code in a sandbox.

This package implements `ports.toolbox` and is the only one that runs other people's code. Nothing is re-exported here
on purpose: the zygote imports this package with an empty environment and must not load anything that it does not use.
Import from the modules themselves.
"""
