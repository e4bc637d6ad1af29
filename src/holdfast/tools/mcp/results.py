"""Convert results of an MCP server to Holdfast's own values. The input is hostile, and no content makes this raise."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from holdfast.core.conversation.images import KINDS
from holdfast.core.conversation.messages import Image, ReturnStatus, Text
from holdfast.ports.stores.mcp_server_store import OfferedTool
from holdfast.ports.toolbox import ToolOutcome
from holdfast.tools.base64_images import image_from_base64

IMAGE_CHARACTERS = 8_000_000


def offered(tool: types.Tool) -> OfferedTool:
    hints = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {}
    return OfferedTool(tool.name, _storable(tool.description or tool.title or ""), dict(tool.input_schema), hints)


def outcome(result: types.CallToolResult) -> ToolOutcome:
    """Texts as one text; with images, as parts. Structured content is used only if the server sent no other content."""
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [Text(_storable(json.dumps(result.structured_content, ensure_ascii=False)))]
    status: ReturnStatus = "error" if result.is_error else "success"
    if any(isinstance(part, Image) for part in parts):
        return ToolOutcome(status, tuple(parts))
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    return ToolOutcome(status, text or ("The tool failed and did not say why." if result.is_error else ""))


def _part(block: Any) -> Text | Image:
    match block:
        case types.TextContent():
            return Text(_storable(block.text))
        case types.ImageContent():
            return _image(block.data)
        case types.AudioContent():
            return Text(f"[audio, {_storable(block.mime_type)}, not shown]")
        case types.ResourceLink():
            return Text(_storable(f"[resource {block.name}: {block.uri}]"))
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return Text(_storable(resource.text))
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            if (resource.mime_type or "").startswith("image/"):
                return _image(resource.blob)
            return Text(_storable(f"[resource {resource.uri}, {resource.mime_type or 'bytes'}, not shown]"))
        case _:
            return Text(f"[content of a kind that is not known here: {_storable(str(getattr(block, 'type', '?')))}]")


def _image(data: str) -> Text | Image:
    if len(data) > IMAGE_CHARACTERS:
        return Text(f"[an image of more than {IMAGE_CHARACTERS} base64 characters, not shown]")
    return image_from_base64(data) or Text(f"[an image that is not a base64 {KINDS}, not shown]")


def _storable(text: str) -> str:
    """Replace what a database cannot store: NUL and unpaired surrogates."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
