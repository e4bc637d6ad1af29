"""Benchmark 9: the time of a page of runs, by every filter, with a million runs. Slow; it runs only if named.

The rows are written in bulk (`run_rows`), which takes minutes; pass your own URL with `--database` to keep them for the
next time. Each case is queried with random values, round after round, through the store in this process; some are also
queried over HTTP. The last case differs every time: two or three random filters, any cursor, any order.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from bench import run_rows
from bench.clients import HoldfastClient, new_session
from bench.results import Bar, Row
from bench.sampling import Setting, median_ms, percentile, timed
from bench.stage import database
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter
from holdfast.storage.records.history_store import SqlHistory
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.schema.migrate import migrate
from holdfast.storage.sql.database import Database, make_engine
from holdfast.testing.server import ServerProcess

RUNS, QUICK_RUNS = 1_000_000, 100_000
ROUNDS, QUICK_ROUNDS = 200, 30
CASE_SECONDS = 20.0  # a case that is far from its limit needs fewer samples
CLIENT_BAR, ANY_BAR = Bar("value", 50), Bar("value", 500)
# What clients filter by. A case that filters by nothing else is held to the stricter limit, in any order.
CLIENT_FILTERS = {
    *("run_id", "agent_ids", "conversation_id", "statuses", "stop_reason", "background", "start_date", "end_date"),
}
PAGE = 100
SECOND = 1_000_000_000

Asked = tuple[RunFilter, Page]
Ask = Callable[[random.Random, list[str]], Asked]


def _of(page: Page | None = None, **wanted: Any) -> Ask:
    return lambda chance, known: (RunFilter(**wanted), page or Page(limit=PAGE))


def _agent(chance: random.Random) -> tuple[str, ...]:
    return (run_rows.agent_id(chance.randrange(1, run_rows.AGENTS)),)


def _since(chance: random.Random, **wanted: Any) -> Asked:
    start = run_rows.day(chance)
    return RunFilter(start_date=start, end_date=start + timedelta(days=3), **wanted), Page(limit=PAGE)


BUSY = (run_rows.agent_id(0),)
ORDERS = ("created_at", "created_at", "duration")
OTHER_FILTERS = {field: value for field, value in asdict(RunFilter()).items() if field not in CLIENT_FILTERS}
BY_CHANCE = "two or three by chance"
LONGEST = Page(limit=PAGE, order_by="duration")
SHORTEST = Page(limit=PAGE, order_by="duration", order="asc")

CASES: dict[str, Ask] = {
    "all": _of(),
    "oldest first": _of(Page(limit=PAGE, order="asc")),
    "after a cursor": lambda chance, known: (RunFilter(), Page(limit=PAGE, after=chance.choice(known))),
    "before a cursor": lambda chance, known: (RunFilter(), Page(limit=PAGE, before=chance.choice(known))),
    "by id": lambda chance, known: (RunFilter(run_id=chance.choice(known)), Page(limit=PAGE)),
    "longest first": _of(LONGEST),
    "shortest first": _of(SHORTEST),
    "longest first, after a cursor": lambda chance, known: (
        RunFilter(),
        Page(limit=PAGE, order_by="duration", after=chance.choice(known)),
    ),
    "an agent": lambda chance, known: (RunFilter(agent_ids=_agent(chance)), Page(limit=PAGE)),
    "two agents": lambda chance, known: (RunFilter(agent_ids=_agent(chance) + BUSY), Page(limit=PAGE)),
    "the longest of an agent": lambda chance, known: (RunFilter(agent_ids=_agent(chance)), LONGEST),
    "the longest of two agents": lambda chance, known: (RunFilter(agent_ids=_agent(chance) + BUSY), LONGEST),
    "a status": _of(statuses=("failed",)),
    "two statuses": _of(statuses=("failed", "cancelled")),
    "active": _of(statuses=("created", "running")),
    "the longest of a status": _of(LONGEST, statuses=("cancelled",)),
    "a stop reason": _of(stop_reason="error"),
    "a rare stop reason": _of(stop_reason="max_steps"),
    "the usual stop reason": _of(stop_reason="end_turn"),
    "background": _of(background=True),
    "the longest in the background": _of(LONGEST, background=True),
    "a conversation": lambda chance, known: (
        RunFilter(conversation_id=run_rows.conversation_id(chance.randrange(run_rows.AGENTS), default=False)),
        Page(limit=PAGE),
    ),
    "default conversations": _of(in_default_conversation=True),
    "a busy project": _of(project_id="project-busy"),
    "a small project": _of(project_id="project-small"),
    "the longest of a project": _of(LONGEST, project_id="project-busy"),
    "a busy template": _of(base_template_id="template-busy"),
    "a small template": _of(base_template_id="template-small"),
    "three days": lambda chance, known: _since(chance),
    "the longest of three days": lambda chance, known: (_since(chance)[0], LONGEST),
    "three days of a status": lambda chance, known: _since(chance, statuses=("failed",)),
    "as many steps": _of(step_count=3),
    "many steps": _of(step_count=9, step_count_operator="gte"),
    "few steps": _of(step_count=1, step_count_operator="lte"),
    "a common tool": _of(tools_used=("search",)),
    "a tool": _of(tools_used=("pay",)),
    "a rare tool": _of(tools_used=("launch",)),
    "any of two tools": _of(tools_used=("launch", "pay")),
    "a tool of an agent": lambda chance, known: (
        RunFilter(agent_ids=_agent(chance), tools_used=("pay",)),
        Page(limit=PAGE),
    ),
    "longer": lambda chance, known: (RunFilter(duration_ns=chance.randrange(60) * SECOND), Page(limit=PAGE)),
    "very long": _of(duration_ns=120 * SECOND),
    "shorter": _of(duration_ns=SECOND // 2, duration_operator="lt"),
    "percentile of all": lambda chance, known: (RunFilter(duration_percentile=chance.randrange(101)), Page(limit=PAGE)),
    "percentile of all, longest first": _of(LONGEST, duration_percentile=50),
    "percentile of all, shortest first": _of(SHORTEST, duration_percentile=90),
    "percentile of an agent": lambda chance, known: (
        RunFilter(agent_ids=_agent(chance), duration_percentile=90),
        Page(limit=PAGE),
    ),
    "percentile of a busy agent": _of(agent_ids=BUSY, duration_percentile=95),
    "percentile of a status": _of(statuses=("completed",), duration_percentile=99),
    "percentile of a rare status": _of(statuses=("failed",), duration_percentile=50),
    "percentile in the background": _of(background=True, duration_percentile=90),
    "percentile of a project": _of(project_id="project-busy", duration_percentile=90),
    "percentile of a template": _of(base_template_id="template-busy", duration_percentile=90),
    "percentile of a conversation": _of(
        conversation_id=run_rows.conversation_id(0, default=True), duration_percentile=90
    ),
    "percentile of a tool": _of(tools_used=("search",), duration_percentile=90),
    "percentile of three days": lambda chance, known: _since(chance, duration_percentile=90),
    "percentile of many steps": _of(step_count=2, step_count_operator="gte", duration_percentile=90),
    "two that exclude each other": _of(statuses=("cancelled",), stop_reason="error"),
    "failures of a busy agent that has none": _of(agent_ids=BUSY, statuses=("failed",)),
    "failures of an agent": lambda chance, known: (
        RunFilter(agent_ids=_agent(chance), statuses=("failed",)),
        Page(limit=PAGE),
    ),
    "the longest failures in the background": _of(LONGEST, statuses=("failed",), background=True),
    "long failures": _of(statuses=("failed",), duration_ns=60 * SECOND),
    "background of an agent, oldest first": lambda chance, known: (
        RunFilter(agent_ids=_agent(chance), background=True),
        Page(limit=PAGE, order="asc"),
    ),
    "a tool that a busy agent never used": _of(agent_ids=BUSY, tools_used=("pay",)),
    "a tool in three days": lambda chance, known: _since(chance, tools_used=("pay",)),
    "the longest of a tool": _of(LONGEST, tools_used=("pay",)),
    "a template without background": _of(base_template_id="template-busy", background=True),
    "a project and a template of no run": _of(project_id="project-busy", base_template_id="template-busy"),
    "a conversation of another's project": _of(
        conversation_id=run_rows.conversation_id(0, default=True), project_id="project-small"
    ),
    "a status, before a cursor": lambda chance, known: (
        RunFilter(statuses=("failed",), background=False),
        Page(limit=PAGE, before=chance.choice(known)),
    ),
    "three days, after a cursor": lambda chance, known: (
        _since(chance, duration_ns=5 * SECOND)[0],
        Page(limit=PAGE, after=chance.choice(known)),
    ),
    "much at once": lambda chance, known: _since(
        chance, agent_ids=BUSY, statuses=("completed",), background=True, tools_used=("search",), step_count=2
    ),
    BY_CHANCE: lambda chance, known: (_by_chance(chance), _anywhere(chance, known)),
}

FILTERS: tuple[Sequence[dict[str, Any]], ...] = (
    ({"agent_ids": BUSY}, {"agent_ids": (run_rows.agent_id(7),)}, {"agent_ids": (*BUSY, run_rows.agent_id(7))}),
    [{"statuses": (status,)} for status in ("completed", "failed", "cancelled", "running")],
    [{"stop_reason": reason} for reason in ("error", "end_turn", "max_steps", "requires_approval")],
    ({"background": True}, {"background": False}),
    ({"in_default_conversation": True}, {"in_default_conversation": False}),
    ({"conversation_id": run_rows.conversation_id(5, default=False)},),
    ({"project_id": "project-busy"}, {"project_id": "project-small"}),
    ({"base_template_id": "template-busy"}, {"base_template_id": "template-small"}),
    ({"start_date": run_rows.NOW - timedelta(days=1)}, {"end_date": run_rows.NOW - timedelta(days=25)}),
    ({"step_count": 1}, {"step_count": 9, "step_count_operator": "gte"}),
    [{"tools_used": tools} for tools in (("search",), ("pay",), ("launch",), ("search", "pay"))],
    [{"duration_ns": seconds * SECOND} for seconds in (5, 60, 200)],
    ({"duration_percentile": 90},),
)


def _by_chance(chance: random.Random) -> RunFilter:
    wanted: dict[str, Any] = {}
    for choices in chance.sample(FILTERS, chance.choice((2, 2, 3))):
        wanted |= chance.choice(choices)
    return RunFilter(**wanted)


def _anywhere(chance: random.Random, known: list[str]) -> Page:
    cursor: dict[str, Any] = chance.choice(({}, {}, {"after": chance.choice(known)}, {"before": chance.choice(known)}))
    return Page(limit=PAGE, order=chance.choice(("asc", "desc")), order_by=chance.choice(ORDERS), **cursor)


OVER_HTTP: tuple[dict[str, Any], ...] = (
    {},
    {"order_by": "duration"},
    {"statuses": "failed"},
    {"agent_id": BUSY[0], "background": "true"},
    {"tools_used": "pay"},
    {"duration_percentile": 90},
    {"agent_id": BUSY[0], "statuses": "failed"},
    {"project_id": "project-busy", "template_family": "template-busy"},
)


async def measure(setting: Setting) -> list[Row]:
    count, rounds = setting.count(RUNS, QUICK_RUNS), setting.count(ROUNDS, QUICK_ROUNDS)
    with database(setting.database) as (url, _):
        engine = make_engine(url)
        migrate(engine)
        count = run_rows.fill(engine, count)
        engine.dispose()
        taken = await asked_of_the_store(url, rounds)
        with ServerProcess(url, HOLDFAST_DEMO="false") as server:
            taken |= await _asked_over_http(server, rounds)
    worst = max(taken, key=lambda name: percentile(taken[name], 0.99))
    return [_row(name, samples, count, worst=name == worst) for name, samples in taken.items()]


def _row(name: str, samples: list[float], count: int, *, worst: bool) -> Row:
    note = f"median {median_ms(samples):.1f} ms of {len(samples)}"
    if worst:
        note += f"; the worst of all; {count:,} runs of {run_rows.AGENTS} agents"
    tail = percentile(samples, 0.99) * 1000
    bar = CLIENT_BAR if _is_sent_by_clients(name) else ANY_BAR
    return Row(measure=f"list runs: {name}, p99", value=tail, unit="ms", bar=bar, note=note)


def _is_sent_by_clients(name: str) -> bool:
    if name not in CASES:
        return "tools_used" not in name and "percentile" not in name and "project" not in name
    if name == BY_CHANCE:
        return False
    wanted, _ = CASES[name](random.Random(1), ["run-0"])
    return all(getattr(wanted, field) == default for field, default in OTHER_FILTERS.items())


async def asked_of_the_store(url: str, rounds: int) -> dict[str, list[float]]:
    """Query all cases in turn until each has enough samples or has used up its time."""
    chance = random.Random(11)
    store = Database(url)
    try:
        history = SqlHistory(store)
        known = await _cursors(history, chance)
        gc.collect()
        gc.freeze()  # as the server does once it has started
        taken: dict[str, list[float]] = {name: [] for name in CASES}
        for _ in range(rounds):
            for name, ask in CASES.items():
                if sum(taken[name]) < CASE_SECONDS:
                    taken[name].append(await timed(history.runs(DEFAULT_ACTOR, *ask(chance, known))))
        return taken
    finally:
        store.close()


async def _cursors(history: SqlHistory, chance: random.Random) -> list[str]:
    """Ids of runs from all parts of the table, as cursors."""
    places = [RunFilter(start_date=run_rows.day(chance)) for _ in range(100)]
    oldest_first = Page(limit=10, order="asc")
    return [run.id for place in places for run in await history.runs(DEFAULT_ACTOR, place, oldest_first)]


async def _asked_over_http(server: ServerProcess, rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {}
    async with new_session() as session:
        client = HoldfastClient(session, server.url)
        for _ in range(rounds):
            for asked in OVER_HTTP:
                path = f"/v1/runs/?{urlencode(asked | {'limit': PAGE})}"
                taken.setdefault(f"GET {path}", []).append(await timed(client.call("GET", path)))
    return taken
