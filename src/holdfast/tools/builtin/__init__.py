"""The built-in tools: memory, search, the web, running code.

They run in the server's own process, on the agent's own data. Start with `toolbox`. Code that users wrote never runs
here.
"""
