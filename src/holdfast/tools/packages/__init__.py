"""Install the Python packages that tools require, one folder for each set of requirements.

Start with `environments`. A package's code runs only inside a sandbox, and never while it is installed.
"""
