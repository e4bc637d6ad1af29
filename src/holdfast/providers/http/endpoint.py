"""A vendor's endpoint: the provider's name, its base URL, and the HTTP client and retries to call it with.

Each API class gets an `Endpoint` and knows nothing else about its vendor, so Azure, Vertex and a server on localhost
are the same API at another endpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from holdfast.providers.http.client import Http, Splitter, Timeouts
from holdfast.providers.http.credentials import Credentials
from holdfast.providers.http.retries import Retries
from holdfast.providers.http.sse import EventSplitter


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`name` is the provider's name, the prefix of its models' handles; `type` is its vendor type, as clients know it.

    `embedding_name` is the prefix of its embedding models' handles, where clients expect another one.
    """

    name: str
    type: str
    base_url: str
    http: Http
    retries: Retries
    embedding_name: str


def endpoint_for(
    name: str,
    base_url: str,
    credentials: Credentials | None = None,
    *,
    type: str | None = None,
    embedding_name: str | None = None,
    session: aiohttp.ClientSession | None = None,
    timeouts: Timeouts | None = None,
    retries: Retries | None = None,
    new_splitter: Callable[[], Splitter] = EventSplitter,
) -> Endpoint:
    http = Http(name, credentials, session=session, timeouts=timeouts, new_splitter=new_splitter)
    return Endpoint(name, type or name, base_url.rstrip("/"), http, retries or Retries(), embedding_name or name)
