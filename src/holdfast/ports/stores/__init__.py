"""Interfaces of the stores: everything that `engine` and `records` ask of a database.

Protocols and the values that are passed through them; SQL belongs in `storage`.
"""
