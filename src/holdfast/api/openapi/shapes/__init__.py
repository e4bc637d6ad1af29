"""What responses look like: typed dictionaries, and for each family a table from endpoints to them.

The functions in `api.responses` build the values. `tests/api/test_openapi.py` compares them with these shapes.
"""
