"""Recognise messages of a failed or cancelled turn that a client sends again, so that the model reads them once.

Clients send the messages of such a turn again, under new otids, at the front of their next request. The retired server
kept nothing of a failed turn, so they expect that the model has not read them. Here the first copies stay in the
context, with what the turn has done; those that are sent again are added to the history only. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast.core.conversation.messages import Draft, Message, UserBody, plain_text

NUDGE = "[This is an automated system message hidden from the user] "
KEEP_ALIVE = (
    "<system-alert>Automated keep-alive ping. Ignore this message and continue from where you stopped.</system-alert>"
)


def unanswered(context: Sequence[Message], since: int | None) -> tuple[UserBody, ...]:
    """The user's messages in the context from the sequence number `since` on: those of the turns at its end that failed
    or were cancelled."""
    if since is None:
        return ()
    bodies = (message.body for message in context if message.seq >= since)
    return tuple(body for body in bodies if isinstance(body, UserBody) and not _is_automatic(body))


def _is_automatic(body: UserBody) -> bool:
    text = plain_text(body.parts)
    return text.startswith(NUDGE) or text == KEEP_ALIVE


def read_once(known: Sequence[UserBody], sent: tuple[Draft, ...], *, needs_new: bool) -> tuple[Draft, ...]:
    """The drafts of a request; those at its front that repeat the last of the `known` messages stay out of the context.
    With `needs_new` they do so only if another message follows them."""
    longest = min(len(known), len(sent) - 1 if needs_new else len(sent))
    for count in range(longest, 0, -1):
        if all(draft.body == body for draft, body in zip(sent, known[-count:], strict=False)):
            return (*(replace(draft, in_context=False) for draft in sent[:count]), *sent[count:])
    return sent
