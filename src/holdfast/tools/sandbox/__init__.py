"""The server's side of the sandbox: a pool of zygotes, and one confined process for every call of a user's tool.

Start with `process_toolbox`. The code that runs inside the confined processes is in `holdfast.tools.inside`, never
here. All data that comes from there is hostile input.
"""
