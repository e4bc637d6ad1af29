"""The address of an MCP server for one call: URL or command, and headers with the agent's secrets filled in.

Pure functions, except that secrets are decrypted here. Header values and the token may name an agent's secrets, in the
syntax that clients use: `{{ API_KEY }}`, or with a fallback, `{{ API_KEY | none }}`. If a secret is not set and has no
fallback, the header is not sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.core.records import McpKind, McpServer
from holdfast.ports.encryption import Encrypter

AGENT_HEADER = "x-agent-id"
_TEMPLATE = re.compile(r"\{\{\s*(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*(?:\|(?P<fallback>[^{}]*))?\}\}")


@dataclass(frozen=True, slots=True)
class Address:
    """Everything that is needed to reach a server. Calls with equal addresses may share a connection; the agent's id is
    part of it, so that agents never share a session.
    """

    server_id: str
    server_name: str
    kind: McpKind
    agent_id: str
    url: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def address_of(server: McpServer, encrypter: Encrypter, agent_id: str, secrets: Mapping[str, str]) -> Address:
    """`secrets` are already decrypted; the values in the server's record are decrypted here."""
    env = {name: encrypter.decrypt(value) for name, value in (server.env or {}).items()}
    return Address(
        server_id=server.id,
        server_name=server.server_name,
        kind=server.kind,
        agent_id=agent_id,
        url=server.server_url or "",
        headers=tuple(_headers(server, encrypter, agent_id, secrets).items()),
        command=server.command or "",
        args=server.args,
        env=tuple(sorted(env.items())),
    )


def _headers(server: McpServer, encrypter: Encrypter, agent_id: str, secrets: Mapping[str, str]) -> dict[str, str]:
    headers = {AGENT_HEADER: agent_id} if agent_id else {}
    encrypted = dict(server.custom_headers or {})
    if server.auth_token:
        encrypted[server.auth_header or "Authorization"] = server.auth_token
    for name, value in encrypted.items():
        text = filled(encrypter.decrypt(value), secrets)
        if text is not None:
            headers[name] = text
    token = headers.get("Authorization")
    if token and not server.auth_header and " " not in token:  # a bare key without a scheme
        headers["Authorization"] = f"Bearer {token}"
    return headers


def filled(text: str, secrets: Mapping[str, str]) -> str | None:
    """The text with its templates filled in; None if one of them has neither a value nor a fallback."""
    missing = False

    def value_of(found: re.Match[str]) -> str:
        nonlocal missing
        if found["name"] in secrets:
            return secrets[found["name"]]
        missing = missing or found["fallback"] is None
        return (found["fallback"] or "").strip()

    text = _TEMPLATE.sub(value_of, text)
    return None if missing else text
