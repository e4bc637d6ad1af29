"""Test tools that are shipped with Holdfast: fakes, a model server with the vendors' wire formats, contract suites.

Users' tests may import them. The simulator and the kill test are not shipped; they are beside `tests/`.
"""
