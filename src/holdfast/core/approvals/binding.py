"""Binds an approval to the tool and secrets that were current when it was requested, by comparing digests.

The call ledger stores the digest of the tool and that of the secrets as one text, `tool.secrets`, when the call is
made; `change_since` compares it with the agent's current text. The text of a built-in tool is the tool's digest alone,
since it gets no secrets; so is that of calls made by old versions of the server, which did not bind secrets.
"""

from __future__ import annotations

from typing import Literal

Changed = Literal["tool", "secrets"]

_VOID = {
    "tool": "the tool {name} was changed after approval was asked for",
    "secrets": "the agent's secrets were changed after approval of {name} was asked for",
}


def binding(tool: str, secrets: str | None) -> str:
    return tool if secrets is None else f"{tool}.{secrets}"


def change_since(asked: str, now: str) -> Changed | None:
    """What has changed since approval was requested; None if nothing has. A call without a digest was not of a tool of
    this server."""
    tool, _, secrets = asked.partition(".")
    tool_now, _, secrets_now = now.partition(".")
    if asked and tool != tool_now:
        return "tool"
    return "secrets" if secrets and secrets != secrets_now else None


def void_text(changed: Changed, name: str) -> str:
    """The text that tells the model and the audit log that an approval is void."""
    what = _VOID[changed].format(name=name)
    return f"Error: {what}, so the approval is void and it was not run. Call it again if it is still needed."
