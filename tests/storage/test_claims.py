"""Claims of runs: fair between organisations, first come first served within one, and no run is claimed twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, update

from holdfast.storage.records.organizations import DEFAULT_ACTOR, ensure_default
from holdfast.storage.runs.claims import claim_next, free_leases, release
from holdfast.storage.schema.record_tables import agents, conversations, organizations, runs
from holdfast.storage.sql.database import make_engine

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=10)
US, THEM = DEFAULT_ACTOR.org_id, "org-them"


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    engine = make_engine(database_url)
    with engine.begin() as opened:
        ensure_default(opened, NOW)
        opened.execute(insert(organizations), {"id": THEM, "name": "them", "created_at": NOW})
        yield opened
    engine.dispose()


def waiting(connection: Connection, org: str, number: int, conversation: int | None = None, **values: Any) -> str:
    """Insert a run that waits for a worker, in a conversation of its own unless one is given."""
    place = f"{org}-{number if conversation is None else conversation}"
    stamp = {"org_id": org, "created_at": NOW, "updated_at": NOW, "document": {}}
    if connection.execute(select(agents.c.id).where(agents.c.id == f"agent-{place}")).first() is None:
        connection.execute(insert(agents), {"id": f"agent-{place}", "name": "a", **stamp})
        row = {"id": f"conv-{place}", "agent_id": f"agent-{place}", "is_default": True, "next_seq": 1, "version": 1}
        connection.execute(insert(conversations), {**row, **stamp})
    run_id = f"run-{org}-{number}"
    row = {
        "id": run_id,
        "org_id": org,
        "agent_id": f"agent-{place}",
        "conversation_id": f"conv-{place}",
        "in_default_conversation": True,
        "status": "created",
        "turn_id": run_id,
        "background": False,
        "queued": False,
        "created_at": NOW + timedelta(milliseconds=number),
        "lease_epoch": 0,
        "cancel_rollback": False,
        "last_event": 0,
        "num_steps": 0,
        "tools_used": [],
        "metadata": {},
        "request": {},
    }
    connection.execute(insert(runs), row | values)
    return run_id


def claimed(connection: Connection, most: int, now: datetime = NOW) -> list[str]:
    return [claim.run.id for claim in claim_next(connection, "me", now, now + timedelta(seconds=10), most)]


def test_organisations_are_served_in_turn_however_much_one_of_them_sends(connection: Connection) -> None:
    for number in range(20):
        waiting(connection, US, number)
    late = waiting(connection, THEM, 100)
    assert claimed(connection, 2) == [f"run-{US}-0", late]


def test_running_runs_count_as_turns_of_their_organisation(connection: Connection) -> None:
    for number in range(3):
        waiting(connection, US, number, status="running", lease_expires_at=LATER, lease_owner="other")
    waiting(connection, US, 50)
    theirs = [waiting(connection, THEM, number) for number in (100, 101, 102)]
    assert claimed(connection, 3) == theirs


def test_a_run_is_claimed_only_once_until_its_lease_expires(connection: Connection) -> None:
    run_id = waiting(connection, US, 1)
    assert claimed(connection, 5) == [run_id]
    assert claimed(connection, 5) == []
    assert claimed(connection, 5, LATER + timedelta(seconds=1)) == [run_id]


def test_only_the_first_queued_run_is_claimed_and_only_when_its_conversation_is_free(connection: Connection) -> None:
    holder = waiting(connection, US, 1, conversation=7, status="running", lease_expires_at=LATER)
    first = waiting(connection, US, 2, conversation=7, queued=True)
    waiting(connection, US, 3, conversation=7, queued=True)
    assert claimed(connection, 5) == []
    connection.execute(update(runs).where(runs.c.id == holder).values(status="completed", stop_reason="end_turn"))
    assert claimed(connection, 5) == [first]


def test_a_released_run_and_one_of_a_dead_owner_can_be_claimed_at_once(connection: Connection) -> None:
    run_id = waiting(connection, US, 1)
    (first,) = claim_next(connection, "me", NOW, LATER, 1)
    release(connection, first.lease)
    (again,) = claim_next(connection, "you", NOW, LATER, 1)
    assert again.lease.epoch == first.lease.epoch + 1
    release(connection, first.lease)  # too late: another owner has the lease
    assert claimed(connection, 1) == []
    free_leases(connection, ["you"])
    assert claimed(connection, 1) == [run_id]
