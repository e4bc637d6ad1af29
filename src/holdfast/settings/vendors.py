"""The environment variables of the other model vendors: keys, URLs and vendor-specific options.

They are read into one mapping, `Settings.vendors`, by the names that `providers/factory.py` takes: the vendor's prefix
and the part, such as `groq_api_key`. The variables have the vendors' own names, or those that Letta reads.
"""

from __future__ import annotations

from holdfast.settings.parsing import ANY_TEXT, HTTP_URL, TEXT, Reader, Variable

_OPENAI_APIS = ("auto", "chat", "responses")


def _key(prefix: str, vendor: str, name: str = "", *aliases: str) -> Variable:
    return Variable(
        field=f"{prefix}_api_key",
        name=name or f"{prefix.upper()}_API_KEY",
        aliases=aliases,
        reader=TEXT,
        secret=True,
        meaning=f"The key for {vendor}.",
    )


def _url(prefix: str, vendor: str, *aliases: str) -> Variable:
    return Variable(
        field=f"{prefix}_base_url",
        name=f"{prefix.upper()}_BASE_URL",
        aliases=aliases,
        reader=HTTP_URL,
        meaning=f"The URL of {vendor}, if not its default.",
    )


def _self_hosted(prefix: str, server: str, example: str, *aliases: str) -> tuple[Variable, Variable]:
    """A self-hosted server, which is used if its URL is set."""
    url = Variable(
        field=f"{prefix}_base_url",
        name=f"{prefix.upper()}_BASE_URL",
        aliases=aliases,
        reader=HTTP_URL,
        meaning=f"The URL of {server}, for instance {example}. Unset: not used.",
    )
    return url, _key(prefix, f"{server}, if it needs one")


def _extra(field: str, name: str, meaning: str, *aliases: str, reader: Reader = TEXT, secret: bool = False) -> Variable:
    return Variable(field=field, name=name, aliases=aliases, reader=reader, meaning=meaning, secret=secret)


_HOSTED = (
    ("openrouter", "OpenRouter"),
    ("groq", "Groq"),
    ("mistral", "Mistral"),
    ("deepseek", "DeepSeek"),
    ("together", "Together"),
    ("xai", "xAI"),
    ("fireworks", "Fireworks"),
    ("cerebras", "Cerebras"),
    ("baseten", "Baseten"),
    ("minimax", "MiniMax"),
    ("moonshot", "Moonshot"),
    ("moonshot_coding", "Moonshot's Kimi for coding"),
    ("zai", "Z.ai"),
    ("zai_coding", "Z.ai's coding plan"),
)

VENDOR_VARIABLES: tuple[Variable, ...] = (
    _extra(
        "openai_wire",
        "HOLDFAST_OPENAI_WIRE",
        f"Which OpenAI API is used: {', '.join(_OPENAI_APIS)}. auto, the default: Responses for reasoning models.",
        reader=Reader(lambda text: text if text in _OPENAI_APIS else None, f"one of {', '.join(_OPENAI_APIS)}"),
    ),
    *(variable for prefix, vendor in _HOSTED for variable in (_key(prefix, vendor), _url(prefix, vendor))),
    _key("huggingface", "Hugging Face", "HF_TOKEN", "HUGGINGFACE_API_KEY"),
    _url("huggingface", "Hugging Face"),
    *_self_hosted("ollama", "Ollama", "http://localhost:11434"),
    *_self_hosted("lmstudio", "LM Studio", "http://localhost:1234"),
    *_self_hosted("vllm", "vLLM", "http://localhost:8000", "VLLM_API_BASE"),
    *_self_hosted("sglang", "SGLang", "http://localhost:30000", "SGLANG_API_BASE"),
    *_self_hosted("llamacpp", "llama.cpp's server", "http://localhost:8080"),
    _key("azure", "Azure OpenAI", "AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
    _extra(
        "azure_base_url",
        "AZURE_BASE_URL",
        "The endpoint of the Azure OpenAI resource, https://<resource>.openai.azure.com.",
        "AZURE_OPENAI_ENDPOINT",
        reader=HTTP_URL,
    ),
    _extra(
        "azure_api_version",
        "AZURE_API_VERSION",
        "The API version of Azure OpenAI's older, versioned API. Unset: its v1 API, which has no version.",
        "OPENAI_API_VERSION",
    ),
    _extra("bedrock_region", "AWS_REGION", "The AWS region of Bedrock.", "AWS_DEFAULT_REGION"),
    _extra("bedrock_access_key", "AWS_ACCESS_KEY_ID", "The access key for Bedrock."),
    _extra("bedrock_secret_key", "AWS_SECRET_ACCESS_KEY", "The secret of that access key.", secret=True),
    _extra(
        "bedrock_session_token", "AWS_SESSION_TOKEN", "The session token of temporary keys for Bedrock.", secret=True
    ),
    _key("bedrock", "Bedrock, in place of an access key", "AWS_BEARER_TOKEN_BEDROCK"),
    _extra("google_vertex_project", "GOOGLE_CLOUD_PROJECT", "The Google Cloud project of Vertex AI."),
    _extra(
        "google_vertex_location",
        "GOOGLE_CLOUD_LOCATION",
        "The location of Vertex AI, for instance global or europe-west1.",
    ),
    _extra(
        "google_vertex_credentials",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "The JSON file of a service account for Vertex AI. Unset: the machine's own account.",
        reader=ANY_TEXT,
    ),
)
