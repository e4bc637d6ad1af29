"""Read the JSON schema of a tool from its Python source or its arguments model.

Sources are parsed and never executed or imported here. Start with `tool_schema`.
"""
