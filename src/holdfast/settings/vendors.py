"""The variables of the model vendors beyond the first three: keys, URLs, and what some want besides.

They are read into one mapping, `Settings.vendors`, by the names that `providers/catalog.py` takes: the vendor's front
and the part, as `groq_api_key`. The names of the variables are the vendors' own, or what an old Letta server read.
"""

from __future__ import annotations

from holdfast.settings.reading import ANY_TEXT, HTTP_URL, TEXT, Reader, Variable

_WIRES = ("auto", "chat", "responses")


def _key(front: str, vendor: str, name: str = "", *aliases: str) -> Variable:
    return Variable(
        field=f"{front}_api_key",
        name=name or f"{front.upper()}_API_KEY",
        aliases=aliases,
        reader=TEXT,
        secret=True,
        meaning=f"The key for {vendor}.",
    )


def _url(front: str, vendor: str, *aliases: str) -> Variable:
    return Variable(
        field=f"{front}_base_url",
        name=f"{front.upper()}_BASE_URL",
        aliases=aliases,
        reader=HTTP_URL,
        meaning=f"Where {vendor} answers, if not at its own address.",
    )


def _own(front: str, server: str, example: str, *aliases: str) -> tuple[Variable, Variable]:
    """A server of one's own: it is there if its URL is given."""
    url = Variable(
        field=f"{front}_base_url",
        name=f"{front.upper()}_BASE_URL",
        aliases=aliases,
        reader=HTTP_URL,
        meaning=f"Where {server} runs, for instance {example}. Unset: there is none.",
    )
    return url, _key(front, f"{server}, if it wants one")


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
        f"How OpenAI is called: {', '.join(_WIRES)}. auto, also if unset: its reasoning models over Responses.",
        reader=Reader(lambda text: text if text in _WIRES else None, f"one of {', '.join(_WIRES)}"),
    ),
    *(variable for front, vendor in _HOSTED for variable in (_key(front, vendor), _url(front, vendor))),
    _key("huggingface", "Hugging Face", "HF_TOKEN", "HUGGINGFACE_API_KEY"),
    _url("huggingface", "Hugging Face"),
    *_own("ollama", "Ollama", "http://localhost:11434"),
    *_own("lmstudio", "LM Studio", "http://localhost:1234"),
    *_own("vllm", "vLLM", "http://localhost:8000", "VLLM_API_BASE"),
    *_own("sglang", "SGLang", "http://localhost:30000", "SGLANG_API_BASE"),
    *_own("llamacpp", "llama.cpp's server", "http://localhost:8080"),
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
        "The API version of Azure OpenAI's older, dated API. Unset: its v1 API, which has none.",
        "OPENAI_API_VERSION",
    ),
    _extra("bedrock_region", "AWS_REGION", "The region in which Bedrock is called.", "AWS_DEFAULT_REGION"),
    _extra("bedrock_access_key", "AWS_ACCESS_KEY_ID", "The access key for Bedrock."),
    _extra("bedrock_secret_key", "AWS_SECRET_ACCESS_KEY", "The secret of that access key.", secret=True),
    _extra("bedrock_session_token", "AWS_SESSION_TOKEN", "The token of temporary keys for Bedrock.", secret=True),
    _key("bedrock", "Bedrock, in place of an access key", "AWS_BEARER_TOKEN_BEDROCK"),
    _extra("google_vertex_project", "GOOGLE_CLOUD_PROJECT", "The project in which Vertex AI is called."),
    _extra(
        "google_vertex_location",
        "GOOGLE_CLOUD_LOCATION",
        "The location in which Vertex AI is called, for instance global or europe-west1.",
    ),
    _extra(
        "google_vertex_credentials",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "A service account for Vertex AI: its JSON file. Unset: the machine's own account is asked for a token.",
        reader=ANY_TEXT,
    ),
)
