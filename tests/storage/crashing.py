"""A script that runs a turn in a child process which dies, as by `kill -9`, before SQL statement n, for n = 1, 2, 3 …

    python crashing.py DATABASE_URL CONVERSATION...

Each child uses the next conversation. Prints the number of children that died; the child after them finished its turn.
Children are forked from a process that has imported everything and started no thread.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from sqlalchemy import event

from engine.house import opened
from holdfast.testing.script import Call, Say

DIED = 137


async def turn(url: str, conversation: str, fatal: int) -> None:
    async with opened(url, sweep=False) as house:
        house.model.script(Say("I look"), Call("look", {"text": "x"}, id="c1"))
        house.model.script(Say("I saw"))
        seen = 0

        @event.listens_for(house.database.engine, "before_cursor_execute")
        def die(*_: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == fatal:
                os._exit(DIED)

        run = await house.start(conversation, "look, please", stream_tokens=True)
        await house.records(run.id)


def main(url: str, conversations: list[str]) -> int:
    for index, conversation in enumerate(conversations):
        child = os.fork()
        if child == 0:
            asyncio.run(turn(url, conversation, index + 1))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            sys.stdout.write(f"{index}\n")
            return 0
        if code != DIED:
            return 1
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
