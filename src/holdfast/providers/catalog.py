"""The kinds of providers, in one place. Called by the composition root with values from the environment.

To add a provider: write one file here with a class that implements `ports.model.Model` (if it speaks a wire we have,
a base URL is enough and no file is needed); add one line to `KINDS`; let `testing.model_contract` pass over it in
`tests/providers/`. Nothing else in the project needs to know.

A kind's module is imported only when it is configured, so an unused vendor costs nothing at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

import aiohttp

from holdfast.core.errors import Invalid
from holdfast.ports.model import Model

Values = Mapping[str, str | None]
Provider = tuple[str, Model]


class ProviderKind(NamedTuple):
    """A kind of provider: its type, as agents and clients name it, and how one is made from a key and a URL."""

    type: str
    module: str
    class_name: str
    default_url: str | None
    needs_key: bool


KINDS = (
    ProviderKind("openai", "openai_chat", "OpenAIChat", "https://api.openai.com/v1", True),
    ProviderKind("anthropic", "anthropic", "Anthropic", "https://api.anthropic.com", True),
    ProviderKind("demo", "demo", "Demo", None, False),
)


def build(values: Values) -> list[Provider]:
    """The providers that the environment configures: `<type>_api_key` and `<type>_base_url`; demo is always there.

    A server of one's own at a custom OpenAI URL needs no key. It is named `openai-proxy`, as clients know it, while
    its embedding models keep the front `openai`.
    """
    built: list[Provider] = []
    for kind in KINDS:
        key, url = values.get(f"{kind.type}_api_key") or None, values.get(f"{kind.type}_base_url") or None
        if key or url or not kind.needs_key:
            name = "openai-proxy" if kind.type == "openai" and _is_custom(kind, url) else kind.type
            built.append((name, make(kind.type, name, api_key=key, base_url=url)))
    return built


def make(
    type: str,
    name: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    extras: Mapping[str, str] | None = None,
    session: aiohttp.ClientSession | None = None,
) -> Model:
    """One provider of a kind under a name of its own. Raises `Invalid` for a kind that does not exist.

    `session` is what it calls through, if it is not to have one of its own.
    """
    known = {kind.type: kind for kind in KINDS}
    if type not in known:
        raise Invalid(f"There is no provider type {type!r}; there are {', '.join(known)}.")
    kind = known[type]
    if kind.needs_key and not api_key and not base_url:
        raise Invalid(f"A provider of type {type} needs api_key.")
    implementation = getattr(import_module(f"holdfast.providers.{kind.module}"), kind.class_name)
    if kind.default_url is None:
        model: Model = implementation(name)
    elif kind.type == "openai" and name == "openai-proxy":
        model = implementation(name, api_key, base_url or kind.default_url, embedding_name="openai", session=session)
    else:
        model = implementation(name, api_key, base_url or kind.default_url, session=session)
    return model


def _is_custom(kind: ProviderKind, url: str | None) -> bool:
    return url is not None and url.rstrip("/") != kind.default_url
