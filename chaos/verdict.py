"""Checks the promises of the server after the last fault of a kill test."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from chaos.effects import Effects
from chaos.people import Book, FleetClient, Person, Refused

SETTLE_SECONDS = 120.0
AT_ONCE = 16
MANY = 1000


@dataclass(slots=True)
class Verdict:
    book: Book
    client: FleetClient
    effects: Effects
    wrong: list[str] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)

    async def reach(self, people: list[Person]) -> None:
        self.wrong += self.book.problems
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(person: Person) -> None:
            async with limit:
                await self._conversation(person)

        await asyncio.gather(*(one(person) for person in people))
        await self._nothing_is_active()
        effects = self.effects.by_key()
        self.counted["effects"] = sum(effects.values())

    async def _nothing_is_active(self) -> None:
        active = await self.client.ask("GET", "/v1/runs?active=true&limit=100")
        self.wrong += [f"{run['id']} is still {run['status']}" for run in active]

    async def _conversation(self, person: Person) -> None:
        """Check the agent of one user."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._rests_and_goes_on(person)
                runs = await self._all(f"/v1/runs?agent_id={person.agent_id}")
                messages = await self._all(f"/v1/agents/{person.agent_id}/messages?use_assistant_message=false")
        except TimeoutError:
            self.wrong.append(f"{person.name} is stuck")
            return
        except Refused as refused:
            self.wrong.append(f"{person.name} does not go on: {refused}")
            return
        self.counted.update(f"runs {run['status']}{_why(run)}" for run in runs)
        self._nothing_is_lost(person, {run["id"]: run for run in runs}, messages)
        self._history_is_valid(person, messages)
        self._effects_are_as_told(person, messages)
        await self._streams_replay(person, runs)

    async def _rests_and_goes_on(self, person: Person) -> None:
        for run in await self.client.ask("GET", f"/v1/runs?agent_id={person.agent_id}&active=true"):
            await person.at_rest(run["id"])
        await person.answer_all("last")
        body = {"messages": [{"role": "user", "content": "and now?\n/say done"}]}
        answer = await self.client.ask("POST", f"/v1/agents/{person.agent_id}/messages", body, f"{person.name}-last")
        if answer["stop_reason"]["stop_reason"] != "end_turn":
            self.wrong.append(f"{person.name}: the next message ended with {answer['stop_reason']}")

    async def _all(self, path: str) -> list[dict[str, Any]]:
        """Every page of a listing, oldest first."""
        found: list[dict[str, Any]] = []
        while True:
            after = f"&after={found[-1]['id']}" if found else ""
            page = await self.client.ask("GET", f"{path}&limit={MANY}&order=asc{after}")
            fresh = [item for item in page if item["id"] not in {old["id"] for old in found[-MANY:]}]
            found += page
            if not fresh or len(page) < MANY:
                return found

    # ---- what must hold ---------------------------------------------------------------------------------------------

    def _nothing_is_lost(self, person: Person, runs: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        said = Counter(str(item.get("content")).partition("\n")[0] for item in messages if _kind(item) == "user")
        for run_id, (agent_id, text) in self.book.acknowledged.items():
            if agent_id != person.agent_id:
                continue
            self.counted["acknowledged"] += 1
            if run_id not in runs:
                self.wrong.append(f"{run_id} was acknowledged and is lost")
            elif text and said[text] != 1:
                self.wrong.append(f"{text} was acknowledged as {run_id} and is there {said[text]} times")
        self.wrong += [
            f"{text} was said {count} times" for text, count in said.items() if text[:1] == "p" and count > 1
        ]

    def _history_is_valid(self, person: Person, messages: list[dict[str, Any]]) -> None:
        asked, returned = _calls(messages), Counter(_returned_ids(messages))
        self.counted["calls"] += len(asked)
        for call_id in asked.keys() - returned.keys():
            self.wrong.append(f"{person.name}: {call_id} has no return")
        for call_id, count in returned.items():
            if count != 1 or call_id not in asked:
                self.wrong.append(f"{person.name}: {call_id} has {count} returns")

    def _effects_are_as_told(self, person: Person, messages: list[dict[str, Any]]) -> None:
        happened, asked = self.effects.by_key(), _calls(messages)
        for call_id, (step_id, name) in asked.items():
            key = f"{step_id}:{call_id}"
            approved = self.book.approved[key]
            most = approved if name == "count_gated" else 1 + approved
            if name != "count_retry" and happened[key] > most:
                self.wrong.append(f"{person.name}: {name} {key} happened {happened[key]} times, {most} allowed")
        for message in messages:
            for item in _returns(message):
                key = f"{message['step_id']}:{item['tool_call_id']}"
                told = str(item.get("tool_return"))
                if told.startswith("counted ") and not happened[key]:
                    self.wrong.append(f"{person.name}: {key} is reported as done and did not happen")

    async def _streams_replay(self, person: Person, runs: list[dict[str, Any]]) -> None:
        """Every replay begins with the events that the client saw before it was cut off; two replays are equal."""
        for run in runs:
            seen = self.book.seen.get(run["id"])
            if seen is None:
                continue
            try:
                first, second = [await self._replay(run["id"]) for _ in range(2)]
            except TimeoutError:
                self.wrong.append(f"{run['id']} cannot be replayed")
                continue
            self.counted["streams replayed"] += 1
            if first != second:
                self.wrong.append(f"{run['id']}: two replays differ")
            if first[: len(seen)] != seen:
                place = next((n for n, (a, b) in enumerate(zip(seen, first, strict=False)) if a != b), len(first))
                told = f"{seen[place : place + 1]} became {first[place : place + 1]}, of {len(seen)} and {len(first)}"
                self.wrong.append(f"{run['id']}: the replay is not what was seen first: record {place} {told}")

    async def _replay(self, run_id: str) -> list[str]:
        """All events of a run; if the replay breaks, it is requested again, as a client would."""
        body = {"starting_after": 0, "include_pings": False}
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                records = await self.client.stream(f"/v1/runs/{run_id}/stream", body, None) or [""]
                if records[-1].endswith("[DONE]"):
                    return records[:-1]
                self.counted["replays asked for again"] += 1


def _why(run: dict[str, Any]) -> str:
    error = (run.get("metadata") or {}).get("error")
    return f": {str(error).replace(run['id'], 'it')}" if error else ""


def _kind(message: dict[str, Any]) -> str:
    return str(message["message_type"]).removesuffix("_message")


def _calls(messages: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Every call in these messages, with its step and tool."""
    found: dict[str, tuple[str, str]] = {}
    for message in messages:
        if _kind(message) in ("tool_call", "approval_request"):
            for call in message.get("tool_calls") or [message["tool_call"]]:
                found[call["tool_call_id"]] = (message["step_id"], call["name"])
    return found


def _returns(message: dict[str, Any]) -> list[dict[str, Any]]:
    if _kind(message) != "tool_return":
        return []
    return list(message.get("tool_returns") or [message])


def _returned_ids(messages: list[dict[str, Any]]) -> list[str]:
    return [item["tool_call_id"] for message in messages for item in _returns(message)]
