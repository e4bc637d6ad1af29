"""The web tools on real sockets: the text of pages, refused requests, and limits."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from holdfast.core.errors import TellTheModel
from holdfast.outbound.guarded_client import GuardedClient
from holdfast.ports.toolbox import ToolJob
from holdfast.tools.builtin.html_text import readable
from holdfast.tools.builtin.web import PAGE_BYTES, Web

PAGE = """<!doctype html><html><head><title>Tides &amp; moons</title><style>p {color: red}</style>
<script>alert("no")</script></head><body><nav><a href="/">Home</a></nav>
<main><h1>Tides</h1><p>The tide   turns
at <b>six</b>.</p><ul><li>ebb<li>flow</ul><table><tr><td>low</td><td>12:00</td></tr></table>
<pre>a
  b</pre></main><footer>imprint</footer></body></html>"""


class Site:
    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, str], Any]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/page":
                return web.Response(text=PAGE, content_type="text/html")
            case "/latin":
                return web.Response(
                    body="<p>Käse</p>".encode("latin-1"), headers={"content-type": "text/html; charset=latin-1"}
                )
            case "/json":
                return web.json_response({"a": 1})
            case "/long":
                return web.Response(text="x" * (PAGE_BYTES + 10), content_type="text/plain")
            case "/picture":
                return web.Response(body=b"\x89PNG", content_type="image/png")
            case "/search":
                self.asked.append((dict(request.headers), await request.json()))
                found = {"title": "Tides", "url": "https://tides.test", "text": "turns at six", "score": 0.5}
                return web.json_response({"results": [found]})
            case "/broken/search":
                return web.Response(text="<oops>")
        raise web.HTTPNotFound


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield site
    await runner.cleanup()


@pytest.fixture
async def tools(site: Site) -> AsyncIterator[Web]:
    made = Web(GuardedClient(allow_private=True), "a-key", site.url)
    yield made
    await made.close()


def job(name: str, **arguments: Any) -> ToolJob:
    return ToolJob("call", name, "", arguments, "key")


async def fetched(tools: Web, url: str) -> str:
    outcome = await tools.fetch(job("fetch_webpage", url=url))
    assert isinstance(outcome.content, str)
    return outcome.content


async def test_a_page_is_told_as_text_without_scripts_styles_and_navigation(site: Site, tools: Web) -> None:
    text = await fetched(tools, f"{site.url}/page")
    assert text.startswith(f"{site.url}/page\n\nTides & moons\n")
    for said in ("# Tides", "The tide turns at six.", "- ebb", "- flow", "low | 12:00"):
        assert said in text
    for unsaid in ("alert", "color", "<", "\n\n\n"):
        assert unsaid not in text


async def test_other_texts_and_charsets_are_read_too(site: Site, tools: Web) -> None:
    assert '{"a": 1}' in await fetched(tools, f"{site.url}/json")
    assert "Käse" in await fetched(tools, f"{site.url}/latin")


async def test_a_long_page_is_cut_and_says_so(site: Site, tools: Web) -> None:
    text = await fetched(tools, f"{site.url}/long")
    assert text.endswith(f"[The page is larger than {PAGE_BYTES} bytes; this is its beginning.]")
    assert len(text) < PAGE_BYTES + 500


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("{site}/nowhere", "status 404"),
        ("{site}/picture", "image/png"),
        ("file:///etc/passwd", "http:// or https://"),
        ("http://[", "fetch|URL|url"),
        ("http://127.0.0.1:1/", "127.0.0.1"),
    ],
)
async def test_what_cannot_be_fetched_is_told_to_the_model(site: Site, tools: Web, url: str, says: str) -> None:
    with pytest.raises(TellTheModel, match=says):
        await fetched(tools, url.replace("{site}", site.url))


async def test_an_address_inside_is_refused_unless_the_operator_allows_it(site: Site) -> None:
    guarded = Web(GuardedClient(allow_private=False), None, None)
    for url in (f"{site.url}/page", "http://169.254.169.254/latest/meta-data", "http://[::1]/"):
        with pytest.raises(TellTheModel):
            await fetched(guarded, url)
    await guarded.close()


async def test_a_search_sends_its_key_and_gives_what_was_found(site: Site, tools: Web) -> None:
    outcome = await tools.search(job("web_search", query="tides", num_results=3, include_domains=["tides.test"]))
    [(headers, asked)] = site.asked
    assert headers["x-api-key"] == "a-key"
    assert (asked["query"], asked["numResults"], asked["includeDomains"]) == ("tides", 3, ["tides.test"])
    found = json.loads(str(outcome.content))
    assert found == [{"title": "Tides", "url": "https://tides.test", "text": "turns at six"}]


async def test_without_a_key_the_model_is_told_that_searching_is_off() -> None:
    keyless = Web(GuardedClient(allow_private=False), None, None)
    with pytest.raises(TellTheModel, match="EXA_API_KEY"):
        await keyless.search(job("web_search", query="x"))
    await keyless.close()


async def test_an_answer_of_the_search_service_that_makes_no_sense_is_told(site: Site) -> None:
    for place, says in (("/broken", "cannot be read"), ("/elsewhere", "status 404")):
        tools = Web(GuardedClient(allow_private=True), "k", f"{site.url}{place}")
        with pytest.raises(TellTheModel, match=says):
            await tools.search(job("web_search", query="x"))
        await tools.close()


@pytest.mark.parametrize(
    "piece", ["<b>", "<script>", "</p>", "<", "<!--", "<!", "<?", "&", "<a ", "<title>", "<ul><li>"]
)
def test_a_hostile_page_is_read_in_time_that_grows_with_its_length(piece: str) -> None:
    """Four times the length takes about four times as long; if it were quadratic, sixteen times."""

    def seconds(length: int) -> float:
        page = piece * (length // len(piece)) + "end"
        return min(_timed(page) for _ in range(3))

    assert seconds(400_000) < 10 * max(seconds(100_000), 0.005)


def _timed(page: str) -> float:
    """The time that reading the page takes."""
    began = time.process_time()
    readable(page)
    return time.process_time() - began
