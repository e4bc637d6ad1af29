"""Keeps credentials out of what we pass on: vendors and proxies like to repeat the key they refuse.

Around every call, so that no error leaves this room with a credential in it, whoever shows, stores or logs it later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from holdfast.core.errors import ModelError

HIDDEN = "[hidden]"
_PROVING = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token", "cookie")
_MIN_CHARS = 4  # what is shorter is no secret, and hiding it would garble the text


@contextmanager
def discreet(headers: Mapping[str, str]) -> Iterator[None]:
    """Errors raised inside lose the credentials that these headers carry."""
    try:
        yield
    except ModelError as error:
        secrets = _secrets(headers)
        error.message = without(secrets, error.message)
        error.detail = None if error.detail is None else without(secrets, error.detail)
        error.args = (error.message,)
        raise


def without(secrets: list[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _secrets(headers: Mapping[str, str]) -> list[str]:
    """The values, and each of their words: a scheme (`Bearer`) may be left out when the rest is repeated."""
    values = [text for name, text in headers.items() if name.lower() in _PROVING]
    words = [word for text in values for word in text.split() if word.lower() not in ("bearer", "basic")]
    return sorted((text for text in {*values, *words} if len(text) >= _MIN_CHARS), key=len, reverse=True)
