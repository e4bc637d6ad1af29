"""New identifiers: a prefix that says what it names, and a random uuid.

`make_uuid` is where chance comes in; the simulator puts a seeded one in its place, so that a history can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

from holdfast.core.outward import id_before

make_uuid: Callable[[], UUID] = uuid4


def new_id(prefix: str) -> str:
    return f"{prefix}-{make_uuid()}"


def new_reply_ids() -> tuple[str, str]:
    """Ids for a model reply: the message's own, and one less for the approval request it may become."""
    while True:
        message_id = new_id("message")
        request_id = id_before(message_id)
        if request_id[:-1] == message_id[:-1]:  # no borrow, so both stay well-formed uuid4s
            return message_id, request_id
