"""Makes new ids: a prefix for the kind of record and a random uuid.

`make_uuid` is the only source of randomness; the simulator replaces it with a seeded one so that histories repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

from holdfast.core.conversation.wire_messages import id_before

make_uuid: Callable[[], UUID] = uuid4


def new_id(prefix: str) -> str:
    return f"{prefix}-{make_uuid()}"


def new_reply_ids() -> tuple[str, str]:
    """Two ids for a model reply: its message id, and that id minus one for an approval request."""
    while True:
        message_id = new_id("message")
        request_id = id_before(message_id)
        if request_id[:-1] == message_id[:-1]:  # no borrow, so both stay well-formed uuid4s
            return message_id, request_id
