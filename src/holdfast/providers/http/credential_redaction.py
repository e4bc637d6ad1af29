"""Removes credentials from error texts, since vendors and proxies often repeat the key that they reject.

`http.client` wraps every call in `redact_credentials`, so that no error leaves `providers` with a credential in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from holdfast.core.errors import ModelError

HIDDEN = "[hidden]"
_CREDENTIAL_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token", "cookie")
_MIN_CHARS = 4  # a shorter text is not a secret, and replacing it would garble the message


@contextmanager
def redact_credentials(headers: Mapping[str, str]) -> Iterator[None]:
    """Removes the credentials in these headers from every `ModelError` raised inside."""
    try:
        yield
    except ModelError as error:
        secrets = _secrets_in(headers)
        error.message = redact(secrets, error.message)
        error.detail = None if error.detail is None else redact(secrets, error.detail)
        error.args = (error.message,)
        raise


def redact(secrets: list[str], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _secrets_in(headers: Mapping[str, str]) -> list[str]:
    """The header values and each of their words, since a vendor may repeat the key without its scheme (`Bearer`)."""
    values = [text for name, text in headers.items() if name.lower() in _CREDENTIAL_HEADERS]
    words = [word for text in values for word in text.split() if word.lower() not in ("bearer", "basic")]
    return sorted((text for text in {*values, *words} if len(text) >= _MIN_CHARS), key=len, reverse=True)
