"""Small helpers to read a vendor's request back into our own words, shared by both server-side wires."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from holdfast.core.messages import Body, Image, Message

_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def as_messages(bodies: Iterable[Body]) -> list[Message]:
    """Bodies in envelopes; who and when do not matter to the demo model."""
    return [
        Message(f"message-{seq}", "agent-wire", "conversation-wire", seq, _ANY_TIME, body)
        for seq, body in enumerate(bodies)
    ]


def image_of_url(url: str) -> Image:
    """An image by reference, or by value if the URL holds it."""
    if not url.startswith("data:"):
        return Image(url=url)
    head, _, data = url.partition(",")
    return Image(data=data, media_type=head.removeprefix("data:").partition(";")[0])
