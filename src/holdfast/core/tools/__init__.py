"""Tools as the loop sees them: tool rules, JSON schemas, call arguments, limits, and clipping of returns.

Pure functions over plain values. Running a tool and reading its source belong in the package `tools`.
"""
