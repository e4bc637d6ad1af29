"""The guarded session checks every hop, also after a redirect."""

from __future__ import annotations

import pytest
from aiohttp import web

from holdfast.outbound.guarded_session import guarded_session
from holdfast.ports.outbound import AddressRefused


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "0x7f.1", "[::ffff:127.0.0.1]"])
async def test_a_private_address_is_refused_in_every_notation(host: str) -> None:
    async with guarded_session(allow_private=False) as session:
        with pytest.raises(AddressRefused):
            await session.get(f"http://{host}:1/")


async def test_a_redirect_to_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(request: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{request.url.port}/secret")

    async def secret(request: web.Request) -> web.Response:
        return web.Response(text="inside")

    app = web.Application()
    app.router.add_get("/", away)
    app.router.add_get("/secret", secret)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    # The first hop is a name, and the patched resolver accepts it; the second is an IP address.
    monkeypatch.setattr("holdfast.outbound.guarded_resolver.check_address", lambda text, named: None)
    async with guarded_session(allow_private=False) as session:
        with pytest.raises(AddressRefused):
            await session.get(f"http://localhost:{port}/")
    async with guarded_session(allow_private=True) as session:
        assert await (await session.get(f"http://localhost:{port}/")).text() == "inside"
    await runner.cleanup()
