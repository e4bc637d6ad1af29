"""Shared pytest configuration: loads the fixtures, orders the tests, and keeps tests of one module in one worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ("postgres_fixture", "redis_fixture", "database_fixture", "server_fixture")

LONGEST_FIRST = ("tests/chaos/", "tests/simulator/", "tests/clients/test_approval_matrix.py", "tests/api/test_fuzz.py")
SHARING = (
    *(
        "tests/clients/",
        "tests/contract/",
        "tests/mcp_servers/",
        "tests/processes/",
        "tests/storage/test_run_listing.py",
    ),
    *(
        "tests/api/test_bad_input.py",
        "tests/api/test_hostile_bodies.py",
        "tests/api/test_sending_twice.py",
        "tests/api/test_runs.py",
    ),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the long tests first: a long test that begins last would keep one worker busy while the others are idle."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST_FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Keep tests that share a server or rows of their module in one worker; otherwise each worker would create them."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0] if nodeid.startswith(SHARING) else nodeid

    return Together(config, log)
