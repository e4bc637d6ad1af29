"""The base tools that look at the web, through the one guarded way out: never inside, bounded in size and time.

Searching needs a key for Exa; without one the tool says so. A page is fetched as it is, without running scripts, and
told as text. What comes back is other people's writing: data for the model, never an instruction to us.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import orjson

from holdfast.core.errors import TellTheModel
from holdfast.ports.outbound import AddressRefused, Outbound, OutboundAnswer, OutboundRequest, Unreachable
from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.tools.pages import readable

SEARCH_URL = "https://api.exa.ai"
SEARCH_SECONDS = 30.0
FETCH_SECONDS = 20.0
PAGE_BYTES = 2_000_000
MOST_RESULTS = 25
EXCERPT_CHARACTERS = 1000
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
        wanted = job.arguments
        asked: dict[str, Any] = {
            "query": str(wanted["query"]),
            "numResults": min(max(int(wanted.get("num_results") or 10), 1), MOST_RESULTS),
            "contents": {"text": {"maxCharacters": EXCERPT_CHARACTERS}},
        }
        for ours, theirs in (("include_domains", "includeDomains"), ("exclude_domains", "excludeDomains")):
            if wanted.get(ours):
                asked[theirs] = wanted[ours]
        answer = await self._send(
            OutboundRequest(
                url=f"{self._search_url}/search",
                method="POST",
                headers={"content-type": "application/json", "x-api-key": self._key},
                body=orjson.dumps(asked),
                timeout_seconds=SEARCH_SECONDS,
                max_bytes=PAGE_BYTES,
                max_redirects=0,
            )
        )
        if answer.status != 200:
            raise TellTheModel(f"the search service answered with status {answer.status}.")
        return ToolOutcome("success", orjson.dumps(_results(answer.body)).decode())

    async def fetch(self, job: ToolJob) -> ToolOutcome:
        url = str(job.arguments["url"]).strip()
        if not url.lower().startswith(("http://", "https://")):
            raise TellTheModel("the url must begin with http:// or https://.")
        headers = {"accept": "text/html,text/plain,application/json;q=0.9,*/*;q=0.5", "user-agent": "Holdfast"}
        answer = await self._send(
            OutboundRequest(url=url, headers=headers, timeout_seconds=FETCH_SECONDS, max_bytes=PAGE_BYTES)
        )
        if answer.status >= 400:
            raise TellTheModel(f"{answer.url} answered with status {answer.status}.")
        text = await asyncio.to_thread(page_text, answer)
        cut = "" if answer.whole else f"\n[The page is larger than {PAGE_BYTES} bytes; this is its beginning.]"
        return ToolOutcome("success", f"{answer.url}\n\n{text}{cut}")

    async def _send(self, request: OutboundRequest) -> OutboundAnswer:
        try:
            return await self._outbound.send(request)
        except (AddressRefused, Unreachable) as error:
            raise TellTheModel(str(error)) from error


def page_text(answer: OutboundAnswer) -> str:
    """What a page says. Raises `TellTheModel` if it is not made of text."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    kind = headers.get("content-type", "text/html").lower()
    if not kind.startswith(_TEXT):
        raise TellTheModel(f"{answer.url} is of type {kind.split(';')[0]}, which cannot be read as text.")
    text = _decoded(answer.body, kind)
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
        listed = orjson.loads(body)["results"]
        return [
            {key: one.get(key) for key in ("title", "url", "publishedDate", "text") if one.get(key)} for one in listed
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TellTheModel("the search service gave an answer that cannot be read.") from error
