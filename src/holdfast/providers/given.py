"""What a provider is made from: the plain values that `catalog.make` hands to a wire's `connect`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiohttp

from holdfast.providers.calling import Retries
from holdfast.providers.credentials import Credentials
from holdfast.providers.http import Splitter, Timeouts
from holdfast.providers.line import Line, line_to
from holdfast.providers.sse import EventSplitter
from holdfast.providers.vendors import Vendor


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """`extras` are those of `vendors.EXTRAS` that were given."""

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

    @property
    def is_custom(self) -> bool:
        return self.url != self.vendor.base_url

    def line(
        self,
        credentials: Credentials,
        *,
        url: str | None = None,
        embedding_name: str | None = None,
        new_splitter: Callable[[], Splitter] = EventSplitter,
    ) -> Line:
        return line_to(
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
