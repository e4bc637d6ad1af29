"""Webhook headers after Standard Webhooks (https://www.standardwebhooks.com): an id, a timestamp and a signature.

The receiver computes the HMAC-SHA256 of `id.timestamp.body` with the shared secret and compares. With the id it can
drop duplicates, with the timestamp old messages. Without a secret there is no signature, only id and timestamp.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import datetime

PREFIX = "whsec_"


def webhook_headers(webhook_id: str, now: datetime, body: bytes, secret: str | None) -> dict[str, str]:
    timestamp = str(int(now.timestamp()))
    headers = {
        "content-type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": timestamp,
    }
    if secret is not None:
        signed = f"{webhook_id}.{timestamp}.".encode() + body
        mac = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(mac).decode()}"
    return headers


def key_of(secret: str) -> bytes:
    """The key of a secret: base64 after the prefix of the standard; any other text is used unchanged."""
    if secret.startswith(PREFIX):
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    return secret.encode()
