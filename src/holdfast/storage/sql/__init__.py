"""What all stores share to run SQL: transactions, rows to values, paging, lists in JSON columns, cached statements.

Nothing here knows a table, except `statements`, which also holds the fenced update of `runs`.
"""
