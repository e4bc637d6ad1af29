"""Listings of runs by any mix of filters, from any cursor, in either order. Start with `list_runs`.

Reads only. Nothing outside of a listing depends on it.
"""
