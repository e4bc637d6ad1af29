"""The table of model vendors: their names, the API each speaks, its address, and its deviations from that API.

The type is the name that clients know the vendor by (letta-client's `ProviderType`, and a few more), and the prefix of
its models' handles. A vendor without a base URL is a self-hosted server, so its URL must be given. The environment
variables of each vendor are in `settings/vendors.py`, joined to this table by `variable`; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from holdfast.providers.openai.quirks import COMPATIBLE, OPENAI, Quirks

ApiName = Literal["openai", "openai_chat", "anthropic", "gemini", "azure", "bedrock", "vertex", "demo"]
Listing = Literal["models", "ollama", "lmstudio", "llamacpp"]

# The module of each API, below this package; imported when the first provider that speaks it is made.
API_MODULES: Mapping[ApiName, str] = {
    "openai": "openai.openai",
    "openai_chat": "openai.chat_completions",
    "anthropic": "anthropic.anthropic",
    "gemini": "gemini.gemini",
    "azure": "clouds.azure",
    "bedrock": "clouds.bedrock",
    "vertex": "clouds.vertex",
    "demo": "demo.demo_model",
}


class Vendor(NamedTuple):
    """`needs` are the required values (`api_key`, `base_url`, names of extras); `a|b` means one of the two."""

    type: str
    api: ApiName
    base_url: str | None = None
    needs: tuple[str, ...] = ("api_key",)
    quirks: Quirks = COMPATIBLE
    variable: str = ""  # the prefix of its environment variables, if that is not the type
    listing: Listing = "models"
    path: str = ""  # the path that a self-hosted server's URL must end with; added if it is missing


_SELF_HOSTED = ("base_url",)

_ALL = (
    # openai: a private server at OPENAI_BASE_URL needs no key, see `factory.configured`.
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
        # It rejects unknown fields, and call ids must be nine letters or digits.
        quirks=Quirks(refuses=frozenset({"stream_options", "verbosity"}), takes_effort=re.compile(r"(?!)"), id_chars=9),
    ),
    Vendor(
        "deepseek",
        "openai_chat",
        "https://api.deepseek.com/v1",
        # With tools, its thinking models need their reasoning sent back. https://api-docs.deepseek.com/guides/thinking_mode
        quirks=Quirks(
            reasoning_back="reasoning_content", takes_json_schema=False, refuses=frozenset({"parallel_tool_calls"})
        ),
    ),
    Vendor("together", "openai_chat", "https://api.together.xyz/v1"),
    Vendor(
        "xai",
        "openai_chat",
        "https://api.x.ai/v1",
        # Most of its reasoning models reject `reasoning_effort`.
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
    Vendor("ollama", "openai_chat", needs=_SELF_HOSTED, listing="ollama", path="/v1"),
    Vendor("lmstudio_openai", "openai_chat", needs=_SELF_HOSTED, variable="lmstudio", listing="lmstudio", path="/v1"),
    Vendor("vllm", "openai_chat", needs=_SELF_HOSTED, path="/v1"),
    Vendor("sglang", "openai_chat", needs=_SELF_HOSTED, path="/v1"),
    Vendor("llamacpp", "openai_chat", needs=_SELF_HOSTED, listing="llamacpp", path="/v1"),
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
