"""Calls tools on MCP servers: addresses, sessions, guarded HTTP, results. Start with `toolbox`.

`server_address` determines where a call goes and with which headers, `connections` keeps sessions open between calls,
and `protocol`, `guarded_http` and `results` are the only modules that use the official `mcp` package. Importing that
package takes most of a second, so these modules are imported when the first server is contacted, and never by other
packages.
"""
