"""What every test may ask for, and in which order tests run. Fixtures live in modules beside this one."""

import pytest

pytest_plugins = ("postgres_fixture", "redis_fixture", "database_fixture", "server_fixture")

LONGEST_FIRST = ("tests/chaos/", "tests/simulator/", "tests/clients/test_approval_matrix.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A long test that begins last keeps one worker busy while the others have nothing left to do."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST_FIRST))
