"""MCP: tools that other servers offer. Start with `toolbox`.

`addressing` works out where a call goes and with which headers, `connections` keeps sessions open between calls, and
`wire`, `pinned` and `results` are the only files that know the official `mcp` package. That takes most of a second to
import, so they are imported when the first server is talked to.
"""
