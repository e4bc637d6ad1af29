"""Providers made from plain values: a vendor's type, a key, a URL, and whatever more that vendor wants.

`make` is a pure function of these and is what provider records go through; `build` makes the providers that the
environment configures. To add a vendor that speaks a wire we have: one row in `vendors` (and its variables in
`settings/vendors.py`). To add a wire: one module here with a `connect` function and a class that implements
`ports.model.Model`, a server's side in `testing/`, and the model contract over it in `tests/providers/`.

A wire's module is imported only when it is used, so an unused vendor costs nothing at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

import aiohttp

from holdfast.core.errors import Invalid
from holdfast.ports.model import Model
from holdfast.providers.calling import Retries
from holdfast.providers.given import Given
from holdfast.providers.http import Timeouts
from holdfast.providers.vendors import EXTRAS, VENDORS, Vendor

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
    """One provider under a name of its own (its type's, if none is given). Nothing is asked of the vendor yet.

    `session` is what it calls through, if it is not to have one of its own. Raises `Invalid` for a type that does not
    exist and for values that are missing.
    """
    vendor = VENDORS.get(type)
    if vendor is None:
        raise Invalid(f"There is no provider type {type!r}; there are {', '.join(VENDORS)}.")
    given = Given(
        vendor=vendor,
        name=name or type,
        api_key=api_key,
        base_url=base_url,
        extras=extras or {},
        session=session,
        timeouts=timeouts,
        retries=retries,
    )
    said = {"api_key": api_key, "base_url": base_url, **given.extras}
    if not _configured(vendor, {part: text for part, text in said.items() if text}):
        raise Invalid(f"A provider of type {type} needs {' and '.join(vendor.needs).replace('|', ' or ')}.")
    return cast(Model, import_module(f"holdfast.providers.{vendor.wire}").connect(given))


def build(values: Values) -> list[Provider]:
    """The providers that the environment configures."""
    built: list[Provider] = []
    for name, vendor, known in configured(values):
        key, url = known.pop("api_key", None), known.pop("base_url", None)
        built.append((name, make(vendor.type, name, api_key=key, base_url=url, extras=known)))
    return built


def configured(values: Values) -> list[tuple[str, Vendor, dict[str, str]]]:
    """Their names and what is known of each: `<variable>_api_key`, `<variable>_base_url` and extras by name.

    One that is configured by half is left out, since a machine may have some of a cloud's variables for other reasons.
    A server of one's own at a custom OpenAI URL is named `openai-proxy`, as clients know it, while its embedding models
    keep the front `openai`.
    """
    found: list[tuple[str, Vendor, dict[str, str]]] = []
    for vendor in VENDORS.values():
        front = vendor.variable or vendor.type
        said = {part: values.get(f"{front}_{part}") for part in ("api_key", "base_url", *EXTRAS)}
        known = {part: text for part, text in said.items() if text}
        if vendor.needs and not _configured(vendor, known):
            continue
        name, url = vendor.type, known.get("base_url")
        if name == "openai" and url and url.rstrip("/") != vendor.base_url:
            name = "openai-proxy"
        found.append((name, vendor, known))
    return found


def _configured(vendor: Vendor, known: Mapping[str, str]) -> bool:
    """All that it needs is there; a URL of one's own stands in for the key."""
    if vendor.needs == ("api_key",) and "base_url" in known:
        return True
    return all(any(one in known for one in need.split("|")) for need in vendor.needs)
