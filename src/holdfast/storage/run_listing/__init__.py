"""Listings of runs by any mix of filters, from any cursor, in either order. Start with `list_runs`.

Reads only. Only the listing routes use it: what cancels, resumes or deletes finds its runs by a query of its own.
"""
