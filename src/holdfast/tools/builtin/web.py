"""The built-in tools `web_search` and `fetch_webpage`, which reach public addresses only.

Requests go through `ports.outbound`, which refuses private addresses and limits size and time. Searching needs an Exa
key; without one the tool says so. A page is fetched without running scripts and returned as text. Pages are written by
strangers: they are data for the model, and the server never acts on them.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import orjson

from holdfast.core.errors import TellTheModel
from holdfast.ports.outbound import AddressRefused, Outbound, OutboundRequest, OutboundResponse, Unreachable
from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.tools.builtin.html_text import readable

SEARCH_URL = "https://api.exa.ai"
SEARCH_SECONDS = 30.0
FETCH_SECONDS = 20.0
PAGE_BYTES = 2_000_000
MAX_RESULTS = 25
EXCERPT_CHARACTERS = 1000
TEXT_CHARACTERS = 10_000  # of each page, if its text is asked for
# The search service's names of the filters.
_FILTERS = (
    ("category", "category"),
    ("include_domains", "includeDomains"),
    ("exclude_domains", "excludeDomains"),
    ("start_published_date", "startPublishedDate"),
    ("end_published_date", "endPublishedDate"),
    ("user_location", "userLocation"),
)
_CHARSET = re.compile(rb"charset\s*=\s*[\"']?([A-Za-z0-9_-]{1,40})", re.IGNORECASE)
_TEXT = ("text/", "application/json", "application/xml", "application/xhtml+xml", "application/javascript")


class Web:
    def __init__(self, outbound: Outbound, key: str | None, search_url: str | None) -> None:
        self._outbound = outbound
        self._key = key
        self._search_url = search_url or SEARCH_URL

    async def close(self) -> None:
        await self._outbound.close()

    async def search(self, job: ToolJob) -> ToolOutcome:
        if not self._key:
            raise TellTheModel("web_search is off: this server has no key for it. The operator can set EXA_API_KEY.")
        arguments = job.arguments
        with_text = bool(arguments.get("include_text"))
        body: dict[str, Any] = {
            "query": str(arguments["query"]),
            "numResults": min(max(int(arguments.get("num_results") or 10), 1), MAX_RESULTS),
            "contents": {"text": {"maxCharacters": TEXT_CHARACTERS if with_text else EXCERPT_CHARACTERS}},
        }
        for ours, theirs in _FILTERS:
            if arguments.get(ours):
                body[theirs] = arguments[ours]
        response = await self._send(
            OutboundRequest(
                url=f"{self._search_url}/search",
                method="POST",
                headers={"content-type": "application/json", "x-api-key": self._key},
                body=orjson.dumps(body),
                timeout_seconds=SEARCH_SECONDS,
                max_bytes=PAGE_BYTES,
                max_redirects=0,
            )
        )
        if response.status != 200:
            raise TellTheModel(f"the search service responded with status {response.status}.")
        return ToolOutcome("success", orjson.dumps(_results(response.body)).decode())

    async def fetch(self, job: ToolJob) -> ToolOutcome:
        url = str(job.arguments["url"]).strip()
        if not url.lower().startswith(("http://", "https://")):
            raise TellTheModel("the url must begin with http:// or https://.")
        headers = {"accept": "text/html,text/plain,application/json;q=0.9,*/*;q=0.5", "user-agent": "Holdfast"}
        response = await self._send(
            OutboundRequest(url=url, headers=headers, timeout_seconds=FETCH_SECONDS, max_bytes=PAGE_BYTES)
        )
        if response.status >= 400:
            raise TellTheModel(f"{response.url} answered with status {response.status}.")
        text = await asyncio.to_thread(page_text, response)
        cut = "" if response.whole else f"\n[The page is larger than {PAGE_BYTES} bytes; this is its beginning.]"
        return ToolOutcome("success", f"{response.url}\n\n{text}{cut}")

    async def _send(self, request: OutboundRequest) -> OutboundResponse:
        try:
            return await self._outbound.send(request)
        except (AddressRefused, Unreachable) as error:
            raise TellTheModel(str(error)) from error


def page_text(response: OutboundResponse) -> str:
    """The text of a page. Raises `TellTheModel` if it is not of a text type."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    kind = headers.get("content-type", "text/html").lower()
    if not kind.startswith(_TEXT):
        raise TellTheModel(f"{response.url} is of type {kind.split(';')[0]}, which cannot be read as text.")
    text = _decoded(response.body, kind)
    return readable(text) if "html" in kind else text


def _decoded(body: bytes, kind: str) -> str:
    found = _CHARSET.search(kind.encode()) or _CHARSET.search(body[:2048])
    try:
        text = body.decode(found[1].decode() if found else "utf-8", "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _results(body: bytes) -> list[dict[str, Any]]:
    try:
        found = orjson.loads(body)["results"]
        return [
            {key: one.get(key) for key in ("title", "url", "publishedDate", "text") if one.get(key)} for one in found
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TellTheModel("the search service sent a response that cannot be read.") from error
