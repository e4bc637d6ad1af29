"""What every test may ask for, in which order tests run, and which stay together. Fixtures live beside this one."""

import pytest

pytest_plugins = ("postgres_fixture", "redis_fixture", "database_fixture", "server_fixture")

LONGEST_FIRST = ("tests/chaos/", "tests/simulator/", "tests/clients/test_approval_matrix.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A long test that begins last keeps one worker busy while the others have nothing left to do: the longest begin.

    Tests that share a server of their module stay in one worker: scattered, every worker would start it again.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST_FIRST))
    for item in items:
        if isinstance(item, pytest.Function) and _shares_with_its_module(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _shares_with_its_module(item: pytest.Function) -> bool:
    known = item._fixtureinfo.name2fixturedefs  # pytest tells nobody else what a test's fixtures are
    return any(definitions[-1].scope == "module" for definitions in known.values())
