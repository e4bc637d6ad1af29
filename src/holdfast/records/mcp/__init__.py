"""The MCP servers that an organisation has registered, and the tools that they offer.

The MCP protocol itself is in `holdfast.tools.mcp`, never here.
"""
