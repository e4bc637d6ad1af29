"""The simulated users of the kill test: each sends messages to its own agent, answers approvals, and retries failures.

Every request has an `Idempotency-Key` and is retried with any server until it gets a final response. Acknowledged
requests are recorded in `Book` for the verdict.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
import orjson

PATIENCE_SECONDS = 20.0
WAY_PAUSE_SECONDS = 0.2
SOONEST_SECONDS, LATEST_SECONDS = 0.25, 3.0  # between two polls of a run's status
PACES = (0.0, 0.03, 0.27, 1.0)  # of the slowest
ANSWERED_FOR_GOOD = (200, 201, 202, 400, 404, 409, 422)


class Refused(Exception):
    """The server rejected the request."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


@dataclass(slots=True)
class Book:
    """What all users saw acknowledged and streamed, and what they decided."""

    acknowledged: dict[str, tuple[str, str]] = field(default_factory=dict)  # run -> agent, text
    seen: dict[str, list[str]] = field(default_factory=dict)  # run -> records of its first stream
    approved: Counter[str] = field(default_factory=Counter)  # call -> how often it was approved
    unknown: set[str] = field(default_factory=set)  # calls whose outcome was unknown and that needed approval again
    told: Counter[str] = field(default_factory=Counter)
    under_way: set[str] = field(default_factory=set)  # runs that were acknowledged and have not come to rest
    most_at_once: int = 0
    problems: list[str] = field(default_factory=list)

    def acknowledge(self, run_id: str, agent_id: str, text: str) -> None:
        self.acknowledged[run_id] = (agent_id, text)
        self.under_way.add(run_id)
        self.most_at_once = max(self.most_at_once, len(self.under_way))


@dataclass(slots=True)
class FleetClient:
    """An HTTP client that sends requests to the servers of the fleet, with retries."""

    session: aiohttp.ClientSession
    urls: list[str]
    random: Random
    book: Book

    async def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        """The response, after any number of retries. Without a key only GET requests are retried."""
        while True:
            answer = await self.attempt(method, path, body, key)
            if answer is not None:
                status, data = answer
                if status < 300:
                    return data
                raise Refused(status, data)
            if key is None and method != "GET":
                raise Refused(0, "no answer")
            self.book.told["asked again"] += 1
            await asyncio.sleep(WAY_PAUSE_SECONDS * (1 + self.random.random()))

    async def attempt(self, method: str, path: str, body: Any, key: str | None) -> tuple[int, Any] | None:
        """Send a request once; None if it may be retried: there was no response, or a temporary error."""
        headers = {"Idempotency-Key": key} if key else {}
        timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        url = self.random.choice(self.urls) + path
        try:
            async with self.session.request(method, url, json=body, headers=headers, timeout=timeout) as response:
                text = await response.read()
                if response.status not in ANSWERED_FOR_GOOD:
                    self.book.told[f"status {response.status}"] += 1
                    return None
                return response.status, orjson.loads(text) if text else None
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError, ConnectionError):
            return None

    async def stream(
        self, path: str, body: Any, key: str | None, begins: Callable[[str], None] = lambda record: None
    ) -> list[str] | None:
        """The events of a stream until it broke or ended; None if it never began. `begins` gets the first one."""
        headers = {"Idempotency-Key": key} if key else {}
        timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        records: list[str] = []
        url = self.random.choice(self.urls) + path
        try:
            async with self.session.post(url, json=body, headers=headers, timeout=timeout) as response:
                if response.status != 200:
                    if response.status in ANSWERED_FOR_GOOD:
                        raise Refused(response.status, await response.text())
                    return None
                gathered = b""
                async for chunk in response.content.iter_any():
                    gathered += chunk
                    *whole, gathered = gathered.split(b"\n\n")
                    if whole and not records:
                        begins(whole[0].decode())
                    records += [record.decode() for record in whole]
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            pass
        return records or None


@dataclass(slots=True)
class Person:
    name: str
    client: FleetClient
    agent_id: str
    random: Random
    book: Book
    slowest: int = 150  # milliseconds that the slowest model takes for a word
    said: int = 0

    async def live(self, over: asyncio.Event) -> None:
        await asyncio.sleep(self.random.random() * 3)
        while not over.is_set():
            try:
                await self.turn()
            except Refused as refused:
                self._refused(refused)
            except Exception as error:
                self.book.problems.append(f"{self.name}: {error!r}")
                return
            await asyncio.sleep(self.random.random())

    def _refused(self, refused: Refused) -> None:
        """The conversation may be busy with a run whose end this user did not see; any other rejection is an error."""
        self.book.told[f"refused {refused.status}"] += 1
        if refused.status not in (0, 409) and "No tool call is currently awaiting" not in str(refused.body):
            self.book.problems.append(f"{self.name} was refused: {refused}")

    # ---- a turn -----------------------------------------------------------------------------------------------------

    async def turn(self) -> None:
        self.said += 1
        text = f"{self.name}.{self.said}."
        body = {"messages": [{"role": "user", "content": f"{text}\n{self._script(text)}"}]}
        run_id = await self._send(body, text, f"{self.name}-{self.said}")
        if run_id is None:
            return
        if self.random.random() < 0.08:
            await asyncio.sleep(self.random.random() * 0.5)
            await self._cancel(run_id)
        await self.bring_to_rest(run_id)

    def _script(self, text: str) -> str:
        """The directives for the demo model."""
        note = f'{{"note": "{text}"}}'
        slow = f"/slow {int(self.random.choice(PACES) * self.slowest)}"
        ways = (
            "/say one two three four five",
            f"/call count_ask {note}",
            f"/call count_tell {note}\n/call count_retry {note}",
            f"/call count_ask {note}\n/call count_alone {note}\n/then /call count_tell {note}",
            f"/call count_gated {note}",
            f"/call count_gated {note}\n/call count_ask {note}",
        )
        return f"{slow}\n{self.random.choice(ways)}"

    async def _send(self, body: dict[str, Any], text: str, key: str) -> str | None:
        """Send a message directly, streamed or in the background; returns the id of its run."""
        path = f"/v1/agents/{self.agent_id}/messages"
        road = self.random.random()
        if road < 0.4:
            return await self._streamed(path, body, text, key)
        if road < 0.6:
            await self.client.attempt("POST", path, body, key)  # the response is ignored: a failed run gives a 500 too
        run = await self.client.ask("POST", f"{path}/async", body, key)  # the same idempotency key gives the same run
        self.book.acknowledge(run["id"], self.agent_id, text)
        return str(run["id"])

    async def _streamed(self, path: str, body: dict[str, Any], text: str, key: str) -> str:
        background = self.random.random() < 0.5
        watching = {**body, "streaming": True, "stream_tokens": True, "background": background, "include_pings": False}

        def begins(record: str) -> None:
            if (run_id := _data(record).get("run_id")) is not None:
                self.book.acknowledge(run_id, self.agent_id, text)

        records = None
        while records is None:
            records = await self.client.stream(path, watching, key, begins)
            if records is None:
                await asyncio.sleep(WAY_PAUSE_SECONDS)
        run_id = _data(records[0]).get("run_id")
        if run_id is None:  # an error event instead of a run, for instance because the disk is full
            raise Refused(0, records)
        self.book.seen.setdefault(run_id, [record for record in records if not record.endswith("[DONE]")])
        return str(run_id)

    # ---- what comes after -------------------------------------------------------------------------------------------

    async def bring_to_rest(self, run_id: str) -> None:
        """Wait for the end of the run, and answer its approval requests."""
        await self.at_rest(run_id)
        await self.answer_all(run_id)

    async def answer_all(self, key: str) -> None:
        """Answer approval requests until none is left."""
        for number in range(20):
            waiting = await self.client.ask("GET", f"/v1/approvals?agent_id={self.agent_id}")
            if not waiting:
                return
            await self.answer(waiting, f"{self.name}-{key}-{number}")
        self.book.problems.append(f"{self.name}: the approvals after {key} never end")

    async def at_rest(self, run_id: str) -> None:
        """Poll the run with growing pauses: hundreds of users that poll often would overload the servers."""
        pause = SOONEST_SECONDS
        while await self._is_active(run_id):
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LATEST_SECONDS)
        self.book.under_way.discard(run_id)

    async def _is_active(self, run_id: str) -> bool:
        run = await self.client.ask("GET", f"/v1/runs/{run_id}")
        return run["status"] in ("created", "running")

    async def answer(self, waiting: list[dict[str, Any]], key: str) -> None:
        approvals = []
        for item in waiting:
            call_id = item["tool_call"]["tool_call_id"]
            if item["outcome_unknown"]:
                self.book.unknown.add(call_id)
                self.book.told["asked about a lost call"] += 1
            yes = self.random.random() < 0.6
            if yes:
                self.book.approved[f"{item['step_id']}:{call_id}"] += 1
            approvals.append({"type": "approval", "tool_call_id": call_id, "approve": yes, "reason": "so"})
        body = {"messages": [{"type": "approval", "approvals": approvals}]}
        try:
            run = await self.client.ask("POST", f"/v1/agents/{self.agent_id}/messages/async", body, f"answer-{key}")
        except Refused as refused:
            self._refused(refused)
            return
        self.book.acknowledge(run["id"], self.agent_id, "")
        await self.at_rest(run["id"])

    async def _cancel(self, run_id: str) -> None:
        path = f"/v1/agents/{self.agent_id}/messages/cancel"
        try:
            await self.client.ask("POST", path, {"run_ids": [run_id]})
            self.book.told["cancelled"] += 1
        except Refused:
            self.book.told["cancel got no answer"] += 1


def _data(record: str) -> Any:
    return orjson.loads(record[record.index("data: ") + 6 :])
