"""The values a provider is made from, which `factory.make` passes to the `connect` function of an API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiohttp

from holdfast.providers.http.client import Splitter, Timeouts
from holdfast.providers.http.credentials import Credentials
from holdfast.providers.http.endpoint import Endpoint, endpoint_for
from holdfast.providers.http.retries import Retries
from holdfast.providers.http.sse import EventSplitter
from holdfast.providers.vendors import Vendor


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConfig:
    """`extras` holds the values for names in `vendors.EXTRAS` that were given."""

    vendor: Vendor
    name: str
    api_key: str | None = None
    base_url: str | None = None
    extras: Mapping[str, str] = field(default_factory=dict)
    session: aiohttp.ClientSession | None = None
    timeouts: Timeouts | None = None
    retries: Retries | None = None

    @property
    def url(self) -> str:
        url = (self.base_url or self.vendor.base_url or "").rstrip("/")
        return url if url.endswith(self.vendor.path) else url + self.vendor.path

    def endpoint(
        self,
        credentials: Credentials,
        *,
        url: str | None = None,
        embedding_name: str | None = None,
        new_splitter: Callable[[], Splitter] = EventSplitter,
    ) -> Endpoint:
        return endpoint_for(
            self.name,
            url or self.url,
            credentials,
            type=self.vendor.type,
            embedding_name=embedding_name,
            session=self.session,
            timeouts=self.timeouts,
            retries=self.retries,
            new_splitter=new_splitter,
        )
