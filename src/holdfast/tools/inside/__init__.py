"""Code that runs inside the sandbox: the zygote that forks cells, and the cell, the confined process of one tool call.

These modules import only the standard library and each other, because they run where no other file of Holdfast can be
read. An import contract in pyproject.toml and tests/test_layout.py check this. Code that runs in the server never
belongs here; it is in `holdfast.tools.sandbox`. Start with `zygote`, then read `cell`.
"""
