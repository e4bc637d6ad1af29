"""Makes providers from plain values: a vendor's type, a key, a URL, and the vendor's extra options.

`make` makes one provider; records of brought providers go through it. `build` makes the providers that the environment
configures. To add a vendor that speaks an API we have: one row in `vendors` (and its variables in
`settings/vendors.py`). To add an API: one module with a `connect` function and a class that implements
`ports.model.Model`, its name in `vendors.API_MODULES`, a fake server for it in `testing/`, and the model contract over
it in `tests/providers/`.

An API's module is imported when the first provider that speaks it is made, so an unused vendor costs nothing at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

import aiohttp

from holdfast.core.errors import Invalid
from holdfast.ports.model import Model
from holdfast.providers.http.client import Timeouts
from holdfast.providers.http.provider_config import ProviderConfig
from holdfast.providers.http.retries import Retries
from holdfast.providers.vendors import API_MODULES, EXTRAS, VENDORS, Vendor

Values = Mapping[str, str | None]
Provider = tuple[str, Model]


def make(
    type: str,
    name: str | None = None,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    extras: Mapping[str, str] | None = None,
    session: aiohttp.ClientSession | None = None,
    timeouts: Timeouts | None = None,
    retries: Retries | None = None,
) -> Model:
    """One provider, named after its type unless `name` is given. No request is sent yet.

    With `session` its requests go through that session; otherwise it opens one of its own. Raises `Invalid` for an
    unknown type and for missing values.
    """
    vendor = VENDORS.get(type)
    if vendor is None:
        raise Invalid(f"There is no provider type {type!r}; there are {', '.join(VENDORS)}.")
    config = ProviderConfig(
        vendor=vendor,
        name=name or type,
        api_key=api_key,
        base_url=base_url,
        extras=extras or {},
        session=session,
        timeouts=timeouts,
        retries=retries,
    )
    values = {"api_key": api_key, "base_url": base_url, **config.extras}
    if not _configured(vendor, {part: text for part, text in values.items() if text}):
        raise Invalid(f"A provider of type {type} needs {' and '.join(vendor.needs).replace('|', ' or ')}.")
    return cast(Model, import_module(f"holdfast.providers.{API_MODULES[vendor.api]}").connect(config))


def build(values: Values) -> list[Provider]:
    """The providers that the environment configures."""
    built: list[Provider] = []
    for name, vendor, known in configured(values):
        key, url = known.pop("api_key", None), known.pop("base_url", None)
        built.append((name, make(vendor.type, name, api_key=key, base_url=url, extras=known)))
    return built


def configured(values: Values) -> list[tuple[str, Vendor, dict[str, str]]]:
    """The configured providers: name, vendor, and its values (`api_key`, `base_url` and extras).

    `values` has them as `<variable>_api_key`, `<variable>_base_url` and so on. A provider with only some of the values
    it needs is left out, since a machine may have some of a cloud's variables for other reasons. A server at a custom
    OpenAI URL is named `openai-proxy`, as clients know it, while its embedding models keep the prefix `openai`.
    """
    found: list[tuple[str, Vendor, dict[str, str]]] = []
    for vendor in VENDORS.values():
        prefix = vendor.variable or vendor.type
        texts = {part: values.get(f"{prefix}_{part}") for part in ("api_key", "base_url", *EXTRAS)}
        known = {part: text for part, text in texts.items() if text}
        if vendor.needs and not _configured(vendor, known):
            continue
        name, url = vendor.type, known.get("base_url")
        if name == "openai" and url and url.rstrip("/") != vendor.base_url:
            name = "openai-proxy"
        found.append((name, vendor, known))
    return found


def _configured(vendor: Vendor, known: Mapping[str, str]) -> bool:
    """Whether all needed values are there. A custom URL replaces the key, since a private server may need none."""
    if vendor.needs == ("api_key",) and "base_url" in known:
        return True
    return all(any(one in known for one in need.split("|")) for need in vendor.needs)
