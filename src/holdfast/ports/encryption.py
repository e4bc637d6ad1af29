"""The interface of the encrypter: secrets are encrypted before they are stored, so that a database copy is useless.

It encrypts agents' secrets and providers' keys. Records in memory hold the encrypted text; code that needs the value (a
tool's environment, a vendor's header, a response to the owner) decrypts it at that moment and does not keep it. Both
operations are fast enough to be synchronous.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.core.errors import Conflict, Invalid


class NoKey(Invalid):
    """There is no encryption key; the operator must set one."""


class WrongKey(Conflict):
    """The text was encrypted with a key that this server does not have."""


class Encrypter(Protocol):
    def encrypt(self, text: str) -> str:
        """Encrypt a text for storage. Raises `NoKey`."""
        ...

    def encrypt_again(self, text: str, before: str) -> str:
        """Encrypt a text that replaces the stored `before`. If `before` is the same text under the current key, it is
        returned unchanged, so that an unchanged text can be recognised without decrypting it."""
        ...

    def decrypt(self, text: str) -> str:
        """Decrypt a text. Texts that were stored before encryption existed are returned unchanged. Raises
        `WrongKey`."""
        ...
