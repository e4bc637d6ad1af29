"""Tests of the two lifecycle tables: the changes that they allow, and that no other change can be written."""

import pytest

from holdfast.core.errors import Broken
from holdfast.core.lifecycle import (
    CALL_CHANGES,
    RUN_CHANGES,
    can_cancel,
    check_call_change,
    check_run_change,
    status_for,
)


def test_a_finished_run_never_changes_again() -> None:
    assert RUN_CHANGES["failed"] == RUN_CHANGES["cancelled"] == frozenset()


def test_a_completed_run_can_be_cancelled_only_while_it_waits_for_a_human() -> None:
    check_run_change("completed", "cancelled", "requires_approval")
    with pytest.raises(Broken, match="cannot go from completed"):
        check_run_change("completed", "cancelled", "end_turn")


def test_a_settled_call_is_never_started_again() -> None:
    for status in ("settled", "denied", "cancelled"):
        assert CALL_CHANGES[status] == frozenset()
        with pytest.raises(Broken, match="cannot go from"):
            check_call_change(status, "started")


def test_a_started_call_cannot_become_denied_because_it_may_have_happened() -> None:
    assert "denied" not in CALL_CHANGES["started"]


def test_every_stop_reason_has_the_status_that_clients_expect() -> None:
    assert {status_for(stop) for stop in ("end_turn", "max_steps", "tool_rule", "requires_approval")} == {"completed"}
    assert status_for("cancelled") == "cancelled"
    assert status_for("llm_api_error") == status_for("max_tokens_exceeded") == "failed"


def test_only_active_and_waiting_runs_can_be_cancelled() -> None:
    assert can_cancel("created", None)
    assert can_cancel("running", None)
    assert can_cancel("completed", "requires_approval")
    assert not can_cancel("completed", "end_turn")
    assert not can_cancel("failed", "error")
