"""Images by URL are fetched once, before the request is accepted, and from public addresses only."""

from __future__ import annotations

import asyncio
import base64
import gzip
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web

from engine.house import opened
from holdfast.core.conversation.messages import Draft, Image, Part, Text, ToolResult, ToolReturnsBody, UserBody
from holdfast.core.errors import Invalid
from holdfast.core.model import ToolSpec
from holdfast.core.run_request import RunRequest
from holdfast.outbound import image_fetcher
from holdfast.outbound.guarded_client import GuardedClient
from holdfast.outbound.image_fetcher import GuardedImageFetcher
from holdfast.ports.outbound import OutboundRequest, OutboundResponse
from holdfast.ports.stores.agent_store import AgentFilter
from holdfast.storage.records.agent_store import SqlAgents
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.testing.script import Call, Say

PNG = b"\x89PNG\r\n\x1a\n" + b"kelp"
DATA = base64.b64encode(PNG).decode()


class Site:
    """A server on loopback with an image, and with files that are no images."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        match request.path:
            case "/kelp.png":
                return web.Response(body=PNG, content_type="text/plain")
            case "/page":
                return web.Response(text="<html>")
            case "/gone":
                return web.Response(status=404)
            case "/bomb.png":
                return web.Response(body=gzip.compress(PNG + bytes(10_000_000)), headers={"content-encoding": "gzip"})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(PNG)
        if request.path == "/endless.png":
            while True:
                await response.write(bytes(1 << 16))
        await asyncio.Event().wait()
        return response


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_get("/{path:.*}", site.answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield site
    await runner.cleanup()


@pytest.fixture
async def client() -> AsyncIterator[GuardedClient]:
    client = GuardedClient(allow_private=True)
    yield client
    await client.close()


def speaking(*parts: Part) -> tuple[Draft, ...]:
    return (Draft(UserBody(parts)),)


async def test_an_image_by_url_is_fetched_once_and_sent_by_value_with_every_step(
    database_url: str, site: Site, client: GuardedClient
) -> None:
    async with opened(database_url, images=GuardedImageFetcher(client)) as house:
        conversation = await house.agent("look")
        house.model.script(Call("look"))
        house.model.script(Say("Kelp."))
        picture = Image(url=f"{site.url}/kelp.png", detail="low")
        await house.finished(conversation, messages=speaking(Text("What is it?"), picture))
        for request in house.model.requests:
            [body] = [message.body for message in request.messages if isinstance(message.body, UserBody)]
            assert body.parts[1] == replace(picture, data=DATA, media_type="image/png")
    assert site.asked == ["/kelp.png"]


async def test_an_image_in_a_clients_tool_return_is_fetched_too(
    database_url: str, site: Site, client: GuardedClient
) -> None:
    async with opened(database_url, images=GuardedImageFetcher(client)) as house:
        conversation = await house.agent()
        house.model.script(Call("draw", id="c1"))
        house.model.script(Say("Nice."))
        tool = ToolSpec("draw", "Draw.", {"type": "object", "properties": {}})
        await house.finished(conversation, client_tools=(tool,))
        drawn = ToolResult("c1", "success", (Text("Here:"), Image(url=f"{site.url}/kelp.png")))
        await house.finished(conversation, "", answers=(drawn,), client_tools=(tool,))
        last = house.model.requests[-1].messages[-1].body
    assert isinstance(last, ToolReturnsBody)
    assert last.results[0].content[1] == Image(url=f"{site.url}/kelp.png", data=DATA, media_type="image/png")


async def test_an_image_in_an_agents_first_messages_is_fetched_before_the_agent_is_born(
    database_url: str, site: Site, client: GuardedClient
) -> None:
    async with opened(database_url, images=GuardedImageFetcher(client)) as house:
        conversation = await house.agent(first_messages=speaking(Image(url=f"{site.url}/kelp.png")))
        house.model.script(Say("Kelp."))
        await house.finished(conversation, "What was it?")
        first = house.model.requests[0].messages[1].body
        assert first == UserBody((Image(url=f"{site.url}/kelp.png", data=DATA, media_type="image/png"),))
        with pytest.raises(Invalid, match="its server answered 404"):
            await house.agent(name="Unborn", first_messages=speaking(Image(url=f"{site.url}/gone")))
        assert await SqlAgents(house.database).count(DEFAULT_ACTOR, AgentFilter(name="Unborn")) == 0


async def test_the_preview_of_a_request_holds_the_image_that_would_be_sent(
    database_url: str, site: Site, client: GuardedClient
) -> None:
    async with opened(database_url, images=GuardedImageFetcher(client)) as house:
        conversation = await house.agent()
        request = RunRequest(messages=speaking(Image(url=f"{site.url}/kelp.png")))
        preview = await house.maintenance.preview(conversation, request)
        house.model.script(Say("Kelp."))
        await house.finished(conversation, messages=request.messages)
        assert [m.body for m in preview.request.messages] == [m.body for m in house.model.requests[0].messages]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/gone", "its server answered 404"),
        ("/page", "is no image that models take"),
        ("/bomb.png", "is no image that models take"),
        ("/endless.png", "it is too large"),
        ("/drip.png", "did not answer within"),
    ],
)
async def test_a_url_without_an_image_is_refused_and_nothing_has_changed(
    database_url: str, site: Site, client: GuardedClient, path: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_fetcher, "IMAGE_SECONDS", 0.5 if path == "/drip.png" else 10.0)
    async with opened(database_url, images=GuardedImageFetcher(client)) as house:
        conversation = await house.agent()
        with pytest.raises(Invalid, match=why):
            await house.start(conversation, messages=speaking(Image(url=site.url + path)))
        assert await house.kinds(conversation) == ["System"]
        house.model.script(Say("Still here."))
        assert (await house.finished(conversation)).stop_reason == "end_turn"


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "http://127.0.0.1:{port}/kelp.png",
        "http://[::ffff:127.0.0.1]:{port}/kelp.png",
        "http://0x7f.1:{port}/kelp.png",
        "http://2130706433:{port}/kelp.png",
        "http://localhost:{port}/kelp.png",
        "http://169.254.169.254/latest/meta-data",
    ],
)
async def test_an_image_url_that_leads_inside_is_refused_before_anything_is_asked(
    tmp_path: object, site: Site, url: str
) -> None:
    guarded = GuardedClient()
    async with opened(f"sqlite:///{tmp_path}/house.db", images=GuardedImageFetcher(guarded)) as house:
        conversation = await house.agent()
        image = Image(url=url.format(port=site.url.rpartition(":")[2]))
        with pytest.raises(Invalid, match="was not fetched"):
            await house.start(conversation, messages=speaking(image))
    await guarded.close()
    assert site.asked == []


class Outside:
    """Counts what it is asked for and answers with the same image."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.asked = 0

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        self.asked += 1
        whole = len(self.body) <= request.max_bytes
        return OutboundResponse(200, {}, self.body[: request.max_bytes], request.url, whole)

    async def close(self) -> None:
        pass


async def test_all_images_of_a_request_together_have_a_bound_too(tmp_path: object) -> None:
    outside = Outside(PNG + bytes(9 * 1024 * 1024))
    async with opened(f"sqlite:///{tmp_path}/house.db", images=GuardedImageFetcher(outside)) as house:
        conversation = await house.agent()
        many = tuple(Image(url=f"https://x/{n}.png") for n in range(image_fetcher.MAX_IMAGES + 1))
        with pytest.raises(Invalid, match="can have 20 images"):
            await house.start(conversation, messages=speaking(*many))
        assert outside.asked == 0
        with pytest.raises(Invalid, match="it is too large"):
            await house.start(conversation, messages=speaking(*many[:-1]))
        assert outside.asked == 4
