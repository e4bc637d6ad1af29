"""Checks at the end of a simulated history: no confirmed request is lost, no run is active, streams are complete."""

from __future__ import annotations

from holdfast.core.conversation.messages import Text, UserBody
from holdfast.core.lifecycle import ACTIVE
from simulator.auditor import Auditor
from simulator.clients import Promised
from simulator.rows import ConversationRows, RunRow, Tables


def check(tables: Tables, auditor: Auditor, promised: Promised) -> None:
    for stored in tables.conversations.values():
        _said_once(stored, auditor)
        left = [row.call.call.id for row in stored.ledger.values() if not row.returned]
        auditor.require(not left, 3, f"{left} have no return")
    for row in tables.runs.values():
        _stream_is_whole(row, auditor)
    _nothing_confirmed_is_lost(tables, auditor, promised)
    _replays_are_identical(tables, auditor, promised)
    auditor.check()


def _said_once(stored: ConversationRows, auditor: Auditor) -> None:
    said = _texts(stored)
    twice = sorted({text for text in said if text.startswith("c") and said.count(text) > 1})
    auditor.require(not twice, 4, f"{twice} were sent once and stored twice")


def _texts(stored: ConversationRows) -> list[str]:
    bodies = (message.body for message in stored.messages.values())
    return [part.text for body in bodies if isinstance(body, UserBody) for part in body.parts if isinstance(part, Text)]


def _stream_is_whole(row: RunRow, auditor: Auditor) -> None:
    run, book = row.run, auditor.runs[row.run.id]
    auditor.require(run.last_event == book.next_event - 1, 7, f"{run.id} counts {run.last_event} events")
    rests = 0 if run.status in ACTIVE else 1
    waited = run.status == "cancelled" and len(book.rests) == 2  # it waited for approval first
    auditor.require(len(book.rests) == rests or waited, 7, f"{run.id} has {len(book.rests)} stop reasons")
    if run.callback_url and rests:
        auditor.require(len(row.letters) == len(book.rests), 1, f"{run.id} has {len(row.letters)} webhooks")


def _nothing_confirmed_is_lost(tables: Tables, auditor: Auditor, promised: Promised) -> None:
    for sent in promised.sent:
        row = tables.runs.get(sent.run_id)
        if row is None:
            auditor.require(False, 4, f"{sent.run_id} was confirmed and is lost")
            continue
        waits = row.run.queued and row.run.status in ACTIVE
        never_began = waits or (row.run.status == "failed" and row.run.num_steps == 0)
        if sent.text and not never_began:
            there = sent.text in _texts(tables.conversations[sent.conversation_id])
            auditor.require(there, 4, f"{sent.text} was confirmed as {sent.run_id} and is not there")
    for run_id in promised.cancelled:
        status = tables.runs[run_id].run.status
        auditor.require(status not in ACTIVE, 6, f"{run_id} was cancelled and is {status}")


def _replays_are_identical(tables: Tables, auditor: Auditor, promised: Promised) -> None:
    for run_id, after, seen, ended in promised.watched:
        stored = [record for _, page in tables.runs[run_id].pages for record in page][after:]
        same = seen == stored[: len(seen)]
        auditor.require(same, 7, f"a follower of {run_id} received other records than are stored")
        if ended and seen:
            whole = after + len(seen) in auditor.runs[run_id].rests
            auditor.require(whole, 7, f"a stream of {run_id} ended before the run did")
