"""A vendor's end of the wire: under which name we know it, where it is, and how it is called.

Every wire is given a `Line` and knows nothing else of its vendor, so Azure, Vertex and a server on loopback are the
same wire on another line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from holdfast.providers.calling import Retries
from holdfast.providers.credentials import Credentials
from holdfast.providers.http import Http, Splitter, Timeouts
from holdfast.providers.sse import EventSplitter


@dataclass(frozen=True, slots=True)
class Line:
    """`name` is the provider's, the front of its models' handles; `type` is its kind, as clients know kinds.

    `embedding_name` is the front of its embedding models' handles, where clients expect another one.
    """

    name: str
    type: str
    base_url: str
    http: Http
    retries: Retries
    embedding_name: str


def line_to(
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
) -> Line:
    http = Http(name, credentials, session=session, timeouts=timeouts, new_splitter=new_splitter)
    return Line(name, type or name, base_url.rstrip("/"), http, retries or Retries(), embedding_name or name)
