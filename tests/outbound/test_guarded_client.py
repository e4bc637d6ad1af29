"""The guarded client on real sockets: what it refuses, which redirects it follows, and how much it reads.

Names under `.test` are answered by the test in place of DNS, so the guard can be met without leaving the machine.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from holdfast.outbound import guarded_resolver
from holdfast.outbound.guarded_client import GuardedClient
from holdfast.ports.outbound import AddressRefused, OutboundRequest, Unreachable

PUBLIC = "93.184.216.34"


class Site:
    """A server on loopback that records its requests."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        match request.path:
            case "/away":
                raise web.HTTPFound(request.query["to"])
            case "/keep":
                raise web.HTTPTemporaryRedirect(request.query["to"])
            case "/round":
                raise web.HTTPFound("/round")
            case "/long":
                return web.Response(body=b"x" * 5_000_000)
            case "/silent":
                await asyncio.Event().wait()
        return web.Response(text="hello")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application(client_max_size=1 << 20)
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.port = runner.addresses[0][1]
    yield site
    await runner.cleanup()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Fake DNS answers; other names are resolved by the system."""
    known: dict[str, list[str]] = {}
    ask = socket.getaddrinfo

    def answer(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host not in known:
            return ask(host, port, *arguments, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return known


@pytest.fixture
async def strict() -> AsyncIterator[GuardedClient]:
    client = GuardedClient()
    yield client
    await client.close()


@pytest.fixture
async def free() -> AsyncIterator[GuardedClient]:
    client = GuardedClient(allow_private=True)
    yield client
    await client.close()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "127.1",
        "0",
        "0.0.0.0",
        "169.254.169.254",
        "user:password@127.0.0.1",
        "127。0。0。1",
    ],
)
async def test_no_notation_of_a_private_address_is_called(strict: GuardedClient, site: Site, host: str) -> None:
    with pytest.raises((AddressRefused, Unreachable)):
        await strict.send(OutboundRequest(url=f"http://{host}:{site.port}/", timeout_seconds=5))
    assert site.seen == []


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://example.com/", "gopher://x/", "http://", "//x", "nonsense"]
)
async def test_only_http_is_spoken(free: GuardedClient, url: str) -> None:
    with pytest.raises(AddressRefused):
        await free.send(OutboundRequest(url=url))


async def test_a_name_that_resolves_to_a_private_address_is_refused(
    strict: GuardedClient, site: Site, names: dict[str, list[str]]
) -> None:
    names["inside.test"] = ["127.0.0.1"]
    names["both.test"] = [PUBLIC, "127.0.0.1"]
    for host in names:
        with pytest.raises(AddressRefused, match=host):
            await strict.send(OutboundRequest(url=f"http://{host}:{site.port}/"))
    assert site.seen == []


@pytest.mark.parametrize("target", ["http://10.0.0.1/", "http://inside.test/", "http://[::1]/", "file:///etc/passwd"])
async def test_a_redirect_to_a_private_address_is_refused(
    strict: GuardedClient, site: Site, names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    names["inside.test"] = ["192.168.0.1"]
    monkeypatch.setattr(
        guarded_resolver, "is_public", lambda address: address == "127.0.0.1"
    )  # pretend that loopback is public
    with pytest.raises(AddressRefused):
        await strict.send(OutboundRequest(url=f"http://127.0.0.1:{site.port}/away?to={target}"))
    assert len(site.seen) == 1


async def test_an_operator_may_allow_private_addresses(free: GuardedClient, site: Site) -> None:
    answer = await free.send(OutboundRequest(url=f"http://localhost:{site.port}/"))
    assert (answer.status, answer.body, answer.whole) == (200, b"hello", True)


async def test_a_get_follows_redirects_and_a_post_only_those_that_keep_it(free: GuardedClient, site: Site) -> None:
    home = f"http://127.0.0.1:{site.port}"
    got = await free.send(OutboundRequest(url=f"{home}/away?to={home}/there"))
    assert (got.status, got.url) == (200, f"{home}/there")
    kept = await free.send(OutboundRequest(url=f"{home}/keep?to={home}/there", method="POST", body=b"data"))
    assert (kept.status, site.bodies[-1], site.seen[-1].method) == (200, b"data", "POST")
    lost = await free.send(OutboundRequest(url=f"{home}/away?to={home}/there", method="POST", body=b"data"))
    assert lost.status == 302


async def test_credentials_do_not_travel_to_another_origin(free: GuardedClient, site: Site) -> None:
    request = OutboundRequest(
        url=f"http://127.0.0.1:{site.port}/away?to=http://localhost:{site.port}/there",
        headers={"Authorization": "Bearer secret", "x-api-key": "secret", "X-Own": "1", "accept": "text/plain"},
    )
    await free.send(request)
    for name in ("Authorization", "x-api-key", "X-Own"):
        assert name in site.seen[0].headers
        assert name not in site.seen[1].headers
    assert site.seen[1].headers["accept"] == "text/plain"


async def test_a_circle_of_redirects_ends(free: GuardedClient, site: Site) -> None:
    with pytest.raises(Unreachable, match="more than 3 times"):
        await free.send(OutboundRequest(url=f"http://127.0.0.1:{site.port}/round"))
    assert len(site.seen) == 4


async def test_no_more_is_read_than_asked_for(free: GuardedClient, site: Site) -> None:
    answer = await free.send(OutboundRequest(url=f"http://127.0.0.1:{site.port}/long", max_bytes=1000))
    assert (len(answer.body), answer.whole) == (1000, False)


async def test_a_server_that_does_not_respond_in_time_is_unreachable(free: GuardedClient, site: Site) -> None:
    with pytest.raises(Unreachable, match=r"within 0\.1 s"):
        await free.send(OutboundRequest(url=f"http://127.0.0.1:{site.port}/silent", timeout_seconds=0.1))


async def test_the_environments_proxies_are_not_used(
    free: GuardedClient, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert (await free.send(OutboundRequest(url=f"http://127.0.0.1:{site.port}/"))).status == 200
