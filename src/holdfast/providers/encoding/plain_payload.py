"""A model request as plain JSON, for models that speak no vendor's API: the demo model and the scripted one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from holdfast.core.conversation.message_codec import encode
from holdfast.core.model import AnyTool, ModelRequest, OneTool, ToolChoice


def plain_payload(request: ModelRequest) -> Mapping[str, Any]:
    return {
        "model": request.model,
        "messages": [encode(message.body) for message in request.messages],
        "tools": [asdict(tool) for tool in request.tools],
        "tool_choice": _choice(request.tool_choice),
        "settings": asdict(request.settings),
    }


def _choice(choice: ToolChoice) -> str:
    match choice:
        case AnyTool():
            return "required"
        case OneTool(name=name):
            return name
        case _:
            return choice
