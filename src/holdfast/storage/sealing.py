"""The seal: AES-256-GCM with one key for the server. Implements `ports.sealing.Sealer`.

The key is the operator's (`HOLDFAST_ENCRYPTION_KEY`). Without one, a server on SQLite makes its own, once, in the data
folder beside the database, readable by its user alone; so a copy of the database without the folder's key is worthless.
On Postgres several servers share the rows and not the folder, so there the operator has to name the key.

A sealed text is `sealed.<key id>.<nonce and ciphertext>`. The id tells which key it was, so a server that was given a
key later still opens what it sealed with its own, and seals it anew with the next write. Nothing is derived or read
before the first text needs it: scrypt takes some 50 ms.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import secrets
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.ports.sealing import NoKey, WrongKey

KEY_FILE = "encryption.key"
NONCE_BYTES = 12
_SEALED = re.compile(r"sealed\.(?P<key>[0-9a-f]{8})\.(?P<rest>[A-Za-z0-9_-]+={0,2})")


class AesSealer:
    """`folder` is where an own key is kept; without `makes_key` one that is there is used but none is made."""

    def __init__(self, key: str | None, folder: Path, *, makes_key: bool) -> None:
        self._given = key
        self._file = folder / KEY_FILE
        self._makes_key = makes_key

    def seal(self, text: str) -> str:
        key = self._given_key or self._own_key or self._new_key()
        nonce = os.urandom(NONCE_BYTES)
        ciphertext = AESGCM(key).encrypt(nonce, text.encode("utf-8", "surrogatepass"), None)
        return f"sealed.{_id_of(key)}.{base64.urlsafe_b64encode(nonce + ciphertext).decode()}"

    def open(self, text: str) -> str:
        found = _SEALED.fullmatch(text)
        if found is None:
            return text
        key = next((key for key in (self._given_key, self._own_key) if key and _id_of(key) == found["key"]), None)
        if key is None:
            raise WrongKey(
                "This was sealed with another key. Set HOLDFAST_ENCRYPTION_KEY to the key it was sealed with, "
                "or store the value again."
            )
        raw = base64.urlsafe_b64decode(found["rest"])
        try:
            return AESGCM(key).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], None).decode("utf-8", "surrogatepass")
        except InvalidTag as error:
            raise WrongKey("A sealed value was changed in the database; store it again.") from error

    @cached_property
    def _given_key(self) -> bytes | None:
        return _derived(self._given) if self._given else None

    @property
    def _own_key(self) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return self._read_key
        return None

    @cached_property
    def _read_key(self) -> bytes:
        return _derived(self._file.read_text().strip())

    def _new_key(self) -> bytes:
        if not self._makes_key:
            raise NoKey(
                "Secrets are stored encrypted, and this server has no key. Set HOLDFAST_ENCRYPTION_KEY, "
                "to the same value on every server that uses this database."
            )
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_name(f"{KEY_FILE}.{uuid4().hex}")
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # somebody was quicker: theirs is the key
            os.link(draft, self._file)
        draft.unlink()
        _sync_folder(self._file.parent)
        return self._read_key


def _sync_folder(folder: Path) -> None:
    """A key that is lost by a power cut after the first secret was stored would be a lost secret."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _derived(text: str) -> bytes:
    """Any text will do as a key; scrypt makes a short one hard to guess from a stolen database."""
    return hashlib.scrypt(text.encode(), salt=b"holdfast sealing", n=2**14, r=8, p=1, dklen=32)


def _id_of(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:8]
