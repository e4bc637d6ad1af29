"""Encrypts secrets before they are stored, with AES-256-GCM and one key per server.

Implements `ports.encryption.Encrypter`. The operator sets the key (`HOLDFAST_ENCRYPTION_KEY`). Without it, a server on
SQLite generates a key file once, in the data folder beside the database, readable only by its user; so a copy of the
database alone does not reveal secrets. On Postgres several servers share the rows but not the folder, so there the
operator must set the key.

An encrypted text is `sealed.<key id>.<nonce and ciphertext>`. The id says which key was used, so a server that gets
`HOLDFAST_ENCRYPTION_KEY` later still decrypts texts of its key file, and encrypts them with the new key when they are
next written. The key file is read, or made, only when the first text needs it.
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
from typing import TYPE_CHECKING
from uuid import uuid4

from holdfast.ports.encryption import NoKey, WrongKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_FILE = "encryption.key"
NONCE_BYTES = 12
_ENCRYPTED = re.compile(r"sealed\.(?P<key>[0-9a-f]{8})\.(?P<rest>[A-Za-z0-9_-]+={0,2})")


class AesEncrypter:
    """`folder` is where the key file is. Without `makes_key` an existing key file is used, but none is generated."""

    def __init__(self, key: str | None, folder: Path, *, makes_key: bool) -> None:
        # Derived now and not on first use: scrypt would block the event loop for about 60 ms.
        self._given_key = _derive(key) if key else None
        self._file = folder / KEY_FILE
        self._makes_key = makes_key

    def encrypt(self, text: str) -> str:
        key = self._given_key or self._key_from_file or self._generated_key()
        nonce = os.urandom(NONCE_BYTES)
        ciphertext = _cipher(key).encrypt(nonce, text.encode("utf-8", "surrogatepass"), None)
        return f"sealed.{_id_of(key)}.{base64.urlsafe_b64encode(nonce + ciphertext).decode()}"

    def encrypt_again(self, text: str, before: str) -> str:
        sealed = self.encrypt(text)
        found = _ENCRYPTED.fullmatch(before)
        if found is None or not sealed.startswith(f"sealed.{found['key']}."):
            return sealed
        with contextlib.suppress(WrongKey, ValueError):  # the stored text is damaged: replace it
            return before if self.decrypt(before) == text else sealed
        return sealed

    def decrypt(self, text: str) -> str:
        found = _ENCRYPTED.fullmatch(text)
        if found is None:
            return text
        key = next((key for key in (self._given_key, self._key_from_file) if key and _id_of(key) == found["key"]), None)
        if key is None:
            raise WrongKey(
                "This was encrypted with another key. Set HOLDFAST_ENCRYPTION_KEY to the key it was encrypted with, "
                "or store the value again."
            )
        raw = base64.urlsafe_b64decode(found["rest"])
        # Imported with the first secret, like the cipher.
        from cryptography.exceptions import InvalidTag

        try:
            return _cipher(key).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], None).decode("utf-8", "surrogatepass")
        except InvalidTag as error:
            raise WrongKey("An encrypted value was changed in the database; store it again.") from error

    @property
    def _key_from_file(self) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return self._file_key
        return None

    @cached_property
    def _file_key(self) -> bytes:
        return _derive(self._file.read_text().strip())

    def _generated_key(self) -> bytes:
        if not self._makes_key:
            raise NoKey(
                "Secrets are stored encrypted, and this server has no key. Set HOLDFAST_ENCRYPTION_KEY, "
                "to the same value on every server that uses this database."
            )
        self._file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._file.with_name(f"{KEY_FILE}.{uuid4().hex}")
        with os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was faster: its key counts
            os.link(temporary, self._file)
        temporary.unlink()
        _sync_folder(self._file.parent)
        return self._file_key


def _sync_folder(folder: Path) -> None:
    """Make the new file durable: a key lost in a power failure would make secrets stored since then unreadable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cipher(key: bytes) -> AESGCM:
    # Imported with the first secret: the library takes seven megabytes of memory.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _derive(text: str) -> bytes:
    """Derive a key from any text. scrypt makes a short text expensive to guess from a stolen database."""
    return hashlib.scrypt(text.encode(), salt=b"holdfast sealing", n=2**14, r=8, p=1, dklen=32)


def _id_of(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:8]
