"""Lookups of names that users give: a name server that does not answer delays only lookups of the same kind."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from holdfast.outbound.name_lookups import NameLookups


async def test_lookups_that_hang_delay_no_other_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    real = socket.getaddrinfo

    def silent_for_some(host: str, *arguments: Any, **more: Any) -> Any:
        if host == "slow.example":
            answered.wait(60)
            raise OSError("no answer")
        return real(host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", silent_for_some)
    users, operators = NameLookups(2), NameLookups(2)
    hanging = [asyncio.create_task(users.getaddrinfo("slow.example", 80)) for _ in range(40)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(operators.getaddrinfo("127.0.0.1", 80), 10)
    loop = asyncio.get_running_loop()
    assert await asyncio.wait_for(loop.getaddrinfo("127.0.0.1", 80), 10)  # the threads of the loop are free too
    assert threading.active_count() < 20
    for task in hanging[5:]:
        task.cancel()
    answered.set()
    failed = await asyncio.wait_for(asyncio.gather(*hanging, return_exceptions=True), 10)
    assert {type(error) for error in failed} == {OSError, asyncio.CancelledError}
    assert await asyncio.wait_for(users.getaddrinfo("127.0.0.1", 80), 10)
