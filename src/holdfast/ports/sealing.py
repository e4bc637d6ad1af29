"""The promise of the seal: what must not be readable in the database or its backups is sealed before it is stored.

Agents' secrets and providers' keys pass through it. A record in memory holds the sealed text; whoever truly needs the
value (a tool's environment, a vendor's header, the owner who asks for it) opens it at that moment and keeps it no
longer than that. Sealing and opening are quick enough to be plain calls.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.core.errors import Conflict, Invalid


class NoKey(Invalid):
    """There is no key to seal with; the operator must set one."""


class WrongKey(Conflict):
    """The text was sealed with a key that this server does not have."""


class Sealer(Protocol):
    def seal(self, text: str) -> str:
        """The text as it may be stored. Raises `NoKey`."""
        ...

    def open(self, text: str) -> str:
        """What was sealed. A text that was stored before there was a seal is given back as it is. Raises `WrongKey`."""
        ...
