"""The vendors, as one table: what each is called, which wire it speaks, where it is, and how it bends the wire.

The type is the name that clients know the vendor by (letta-client's `ProviderType`, and a few more), and the front of
its models' handles. A vendor without a base URL is one's own server, so its URL must be given. The environment's
variables for each are in `settings/vendors.py`, joined to this table by `variable`; a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from holdfast.providers.quirks import COMPATIBLE, OPENAI, Quirks

WireName = Literal["openai", "openai_chat", "anthropic", "gemini", "azure", "bedrock", "vertex", "demo"]
Listing = Literal["models", "ollama", "lmstudio", "llamacpp"]


class Vendor(NamedTuple):
    """`needs` are the values that it cannot do without (`api_key`, `base_url`, names of extras); `a|b` is either."""

    type: str
    wire: WireName
    base_url: str | None = None
    needs: tuple[str, ...] = ("api_key",)
    quirks: Quirks = COMPATIBLE
    variable: str = ""  # the front of its variables, where that is not the type
    listing: Listing = "models"
    path: str = ""  # what an own server's URL must end with; it is added if it does not


_OWN = ("base_url",)

_ALL = (
    # openai: one's own server at OPENAI_BASE_URL needs no key, see `catalog.build`.
    Vendor("openai", "openai", "https://api.openai.com/v1", quirks=OPENAI),
    Vendor("anthropic", "anthropic", "https://api.anthropic.com"),
    Vendor("google_ai", "gemini", "https://generativelanguage.googleapis.com/v1beta", variable="gemini"),
    Vendor("azure", "azure", needs=("api_key", "base_url"), quirks=OPENAI),
    Vendor("bedrock", "bedrock", needs=("region", "api_key|secret_key")),
    Vendor("google_vertex", "vertex", needs=("project", "location")),
    Vendor(
        "openrouter",
        "openai_chat",
        "https://openrouter.ai/api/v1",
        quirks=Quirks(reasoning_back="reasoning_details"),
    ),
    Vendor(
        "groq",
        "openai_chat",
        "https://api.groq.com/openai/v1",
        quirks=Quirks(max_tokens_field="max_completion_tokens", takes_effort=re.compile(r"gpt-oss|qwen")),
    ),
    Vendor(
        "mistral",
        "openai_chat",
        "https://api.mistral.ai/v1",
        # It refuses fields it does not know; ids of calls are nine letters or digits.
        quirks=Quirks(refuses=frozenset({"stream_options", "verbosity"}), takes_effort=re.compile(r"(?!)"), id_chars=9),
    ),
    Vendor(
        "deepseek",
        "openai_chat",
        "https://api.deepseek.com/v1",
        # Thinking with tools wants its reasoning back. https://api-docs.deepseek.com/guides/thinking_mode
        quirks=Quirks(
            reasoning_back="reasoning_content", takes_json_schema=False, refuses=frozenset({"parallel_tool_calls"})
        ),
    ),
    Vendor("together", "openai_chat", "https://api.together.xyz/v1"),
    Vendor(
        "xai",
        "openai_chat",
        "https://api.x.ai/v1",
        # Most of its reasoning models refuse to be told how hard to think.
        quirks=Quirks(max_tokens_field="max_completion_tokens", takes_effort=re.compile(r"grok-3-mini|grok-4\.")),
    ),
    Vendor("fireworks", "openai_chat", "https://api.fireworks.ai/inference/v1"),
    Vendor(
        "cerebras",
        "openai_chat",
        "https://api.cerebras.ai/v1",
        quirks=Quirks(max_tokens_field="max_completion_tokens", takes_effort=re.compile(r"gpt-oss")),
    ),
    Vendor("baseten", "openai_chat", "https://inference.baseten.co/v1"),
    Vendor("hugging-face", "openai_chat", "https://router.huggingface.co/v1", variable="huggingface"),
    Vendor("minimax", "anthropic", "https://api.minimax.io/anthropic"),
    Vendor("moonshot", "openai_chat", "https://api.moonshot.ai/v1", quirks=Quirks(reasoning_back="reasoning_content")),
    Vendor(
        "moonshot_coding",
        "openai_chat",
        "https://api.kimi.com/coding/v1",
        quirks=Quirks(reasoning_back="reasoning_content"),
    ),
    Vendor("zai", "openai_chat", "https://api.z.ai/api/paas/v4", quirks=Quirks(reasoning_back="reasoning_content")),
    Vendor(
        "zai_coding",
        "openai_chat",
        "https://api.z.ai/api/coding/paas/v4",
        quirks=Quirks(reasoning_back="reasoning_content"),
    ),
    Vendor("ollama", "openai_chat", needs=_OWN, listing="ollama", path="/v1"),
    Vendor("lmstudio_openai", "openai_chat", needs=_OWN, variable="lmstudio", listing="lmstudio", path="/v1"),
    Vendor("vllm", "openai_chat", needs=_OWN, path="/v1"),
    Vendor("sglang", "openai_chat", needs=_OWN, path="/v1"),
    Vendor("llamacpp", "openai_chat", needs=_OWN, listing="llamacpp", path="/v1"),
    Vendor("demo", "demo", needs=()),
)

VENDORS = {vendor.type: vendor for vendor in _ALL}
EXTRAS = (
    "api_version",
    "wire",
    "region",
    "access_key",
    "secret_key",
    "session_token",
    "project",
    "location",
    "credentials",
)
