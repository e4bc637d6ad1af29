"""What every test may ask for, in which order tests run, and which stay together. Fixtures live beside this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

pytest_plugins = ("postgres_fixture", "redis_fixture", "database_fixture", "server_fixture")

LONGEST_FIRST = ("tests/chaos/", "tests/simulator/", "tests/clients/test_approval_matrix.py")
SHARING = (
    *(
        "tests/clients/",
        "tests/mcp_servers/",
        "tests/processes/",
        "tests/storage/test_run_listing.py",
        "tests/storage/test_run_copies.py",
    ),
    *("tests/api/test_bad_input.py", "tests/api/test_sending_twice.py", "tests/api/test_runs.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A long test that begins last keeps one worker busy while the others have nothing left to do."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST_FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Tests that share a server, or rows, of their module stay in one worker: scattered, each would make them again."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0] if nodeid.startswith(SHARING) else nodeid

    return Together(config, log)
