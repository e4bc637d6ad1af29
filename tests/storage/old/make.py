"""Creates the sample database of an earlier release, with all kinds of records, and crashes in the middle of a run.

It runs with that release's code, from a copy of its tree, and writes the ids that it created to `notes.json`:

    git archive 4d3edf7 | tar x -C /tmp/old
    cd /tmp/old && PYTHONPATH=src:tests python …/tests/storage/old/make.py sqlite:////tmp/old.db /tmp/notes.json

A SQLite file is then checkpointed (`PRAGMA wal_checkpoint(TRUNCATE)`) and packed, a Postgres database is dumped with
`pg_dump --inserts --no-owner` and packed: `0001.db.gz` and `0001.sql.gz`. They are never made again.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from engine.house import House, opened
from holdfast.testing.script import Call, Hang, Say


async def talked(house: House) -> dict[str, str]:
    """A conversation that has been compacted, was not forked, and waits for a person."""
    conversation = await house.agent("look", "pay", gated=("pay",), name="talker")
    for number in range(3):
        house.model.script(Say(f"answer {number}"))
        await house.finished(conversation, f"question {number}")
    house.model.script(Call("look", {"text": "around"}, id="c1"))
    house.model.script(Say("I looked around."))
    streamed = await house.finished(conversation, "look around", stream_tokens=True, keys=("otid:o1",), body_digest="d")
    house.model.script(Say("What was said before."))
    await house.maintenance.compact(conversation, None)
    house.model.script(Say("I will ask."), Call("pay", {"text": "5"}, id="c2"))
    waiting = await house.finished(conversation, "pay five")
    return {"conversation": conversation, "streamed": streamed.id, "waiting": waiting.id}


async def abandoned(house: House) -> dict[str, str]:
    """A run whose process crashes while its tool runs, with another run queued behind it."""
    conversation = await house.agent("send", name="sender")
    begun = asyncio.Event()

    async def send(job: object) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    house.toolbox.does["send"] = send
    house.model.script(Call("send", {"text": "a letter"}, id="c3"))
    running = await house.start(conversation, "send a letter")
    await begun.wait()
    queued = await house.start(conversation, "and then?", when_busy="queue")
    house.model.script(Hang())
    return {"sending": conversation, "running": running.id, "queued": queued.id}


async def main(url: str, notes: str) -> None:
    async with opened(url) as house:
        made = {**await talked(house), **await abandoned(house)}
        with open(notes, "w") as file:  # noqa: ASYNC230
            json.dump(made, file, indent=1)
        os._exit(0)  # as by `kill -9`: without any cleanup


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
