"""Databases of earlier releases are migrated, and their conversations and interrupted runs continue.

`old/make.py` says what is in them and how they were made.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from engine.house import opened
from holdfast.core.conversation.messages import Approval
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.script import Say

OLD = Path(__file__).parent / "old"
RELEASES = sorted(path.stem for path in OLD.glob("*.json"))


@dataclass(frozen=True)
class Old:
    url: str
    conversation: str
    streamed: str
    waiting: str
    sending: str
    running: str
    queued: str


@pytest.fixture(params=[(release, kind) for release in RELEASES for kind in ("sqlite", "postgres")], ids="-".join)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    release, kind = request.param
    notes = json.loads((OLD / f"{release}.json").read_text())[kind]
    if kind == "sqlite":
        path = tmp_path / "old.db"
        path.write_bytes(gzip.decompress((OLD / f"{release}.db.gz").read_bytes()))
        yield Old(f"sqlite:///{path}", **notes)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database(f"old_{release}")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(gzip.decompress((OLD / f"{release}.sql.gz").read_bytes()))
    yield Old(url, **notes)
    server.drop_database(f"old_{release}")


async def test_a_database_of_an_earlier_release_is_migrated_and_works(old: Old) -> None:
    async with opened(old.url, sweep=False) as house:
        runs = await house.history.runs(DEFAULT_ACTOR, RunFilter(), Page(limit=100, order="asc"))
        assert [run.id for run in runs][-3:] == [old.waiting, old.running, old.queued]
        records = await house.records(old.streamed)
        assert [record["message_type"] for record in records][-2:] == ["stop_reason", "usage_statistics"]
        assert records[-2]["stop_reason"] == "end_turn"
        assert (await house.kinds(old.conversation)).count("Summary") == 1
        again = await house.start(old.conversation, "look around", keys=("otid:o1",), body_digest="d")
        assert again.id == old.streamed
        house.model.script(Say("paid"))
        paid = await house.finished(old.conversation, "", answers=(Approval("c2", True),))
        assert paid.stop_reason == "end_turn"
        assert [job.name for job in house.toolbox.calls] == ["pay"]
        house.model.script(Say("gladly"))
        assert (await house.finished(old.conversation, "thanks")).stop_reason == "end_turn"


async def test_a_run_in_which_an_earlier_release_crashed_is_taken_over(old: Old) -> None:
    async with opened(old.url) as house:
        await house.records(old.running)
        lost = await house.history.run(DEFAULT_ACTOR, old.running)
        assert lost.stop_reason == "requires_approval"
        assert house.toolbox.calls == []
        house.model.script(Say("not sent"))
        house.model.script(Say("then this"))
        assert (await house.finished(old.sending, "", answers=(Approval("c3", False),))).stop_reason == "end_turn"
        await house.records(old.queued)
        assert (await house.history.run(DEFAULT_ACTOR, old.queued)).stop_reason == "end_turn"
