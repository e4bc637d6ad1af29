"""Gets access tokens for Google Cloud: from a service account, a person's saved login, or the machine's own account.

A service account signs a JWT with its private key (RS256) and exchanges it for a token that lasts an hour; a saved
login exchanges its refresh token; a machine in Google's cloud gets tokens from its metadata server. Only the operator
may use the last: a provider that a user brings must have its own account.
https://developers.google.com/identity/protocols/oauth2/service-account
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import orjson
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from holdfast.core.errors import Invalid, ModelError
from holdfast.providers.http.client import Http

TOKEN_URL = "https://oauth2.googleapis.com/token"
METADATA_URL = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
LIFE_SECONDS = 3600
RENEW_SECONDS = 300  # before a token expires
_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class GoogleTokens:
    """Implements `http.credentials.Credentials`. `account` is the account's JSON; None means the machine's own."""

    def __init__(
        self, http: Http, account: Mapping[str, Any] | None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._http = http
        self._account = account
        self._clock = clock
        self._token = ""
        self._expires_at = 0.0
        self._renew_lock = asyncio.Lock()

    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        async with self._renew_lock:
            if self._clock() >= self._expires_at:
                await self._renew()
        return {"authorization": f"Bearer {self._token}"}

    async def _renew(self) -> None:
        if self._account is None:
            response = await self._http.get_json(METADATA_URL, headers={"metadata-flavor": "Google"})
        else:
            form = urlencode(_grant(self._account, int(self._clock())))
            url = self._account.get("token_uri") or TOKEN_URL
            response = await self._http.post_json(url, form.encode(), "application/x-www-form-urlencoded")
        if not isinstance(response, dict) or not response.get("access_token"):
            raise ModelError("llm_authentication", "Google gave no token for this account.")
        self._token = str(response["access_token"])
        self._expires_at = self._clock() + float(response.get("expires_in") or LIFE_SECONDS) - RENEW_SECONDS


def account_of(text: str) -> Mapping[str, Any]:
    """An account's JSON, checked now so that missing fields are reported before the first call."""
    try:
        account = orjson.loads(text)
    except orjson.JSONDecodeError as broken:
        raise Invalid("The credentials of google_vertex must be a service account's JSON.") from broken
    needs: tuple[str, ...] = ("client_email", "private_key")
    if isinstance(account, dict) and account.get("type") == "authorized_user":
        needs = ("client_id", "client_secret", "refresh_token")
    if not isinstance(account, dict) or not all(account.get(need) for need in needs):
        raise Invalid(f"The credentials of google_vertex need {', '.join(needs)}.")
    return account


def _grant(account: Mapping[str, Any], now: int) -> dict[str, str]:
    if account.get("type") == "authorized_user":
        saved = {name: str(account[name]) for name in ("client_id", "client_secret", "refresh_token")}
        return {"grant_type": "refresh_token", **saved}
    return {"grant_type": _JWT_GRANT, "assertion": _signed_jwt(account, now)}


def _signed_jwt(account: Mapping[str, Any], now: int) -> str:
    head = {"alg": "RS256", "typ": "JWT"}
    claims = {
        "iss": account["client_email"],
        "scope": SCOPE,
        "aud": account.get("token_uri") or TOKEN_URL,
        "iat": now,
        "exp": now + LIFE_SECONDS,
    }
    unsigned = b".".join(_base64(orjson.dumps(part)) for part in (head, claims))
    try:
        key = serialization.load_pem_private_key(str(account["private_key"]).encode(), password=None)
    except ValueError as broken:
        raise ModelError("llm_authentication", "The private key of the service account cannot be read.") from broken
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ModelError("llm_authentication", "The private key of the service account is not an RSA key.")
    return b".".join((unsigned, _base64(key.sign(unsigned, padding.PKCS1v15(), hashes.SHA256())))).decode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
