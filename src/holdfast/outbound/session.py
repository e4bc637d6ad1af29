"""A guarded session for whoever speaks HTTP by itself: the model wires of providers that users bring.

The same rules as `client`, hop by hop: the resolver refuses names that lead inside, the middleware refuses addresses
written as such (aiohttp resolves only names). Both run again for each hop of a redirect.
"""

from __future__ import annotations

from ipaddress import ip_address

import aiohttp

from holdfast.outbound.resolving import GuardedResolver, check_address

MAX_CONNECTIONS = 1000


def guarded_session(*, allow_private: bool) -> aiohttp.ClientSession:
    """To be made inside the loop that uses it, and closed by whoever made it."""
    connector = aiohttp.TCPConnector(
        resolver=GuardedResolver(allow_private=allow_private), use_dns_cache=False, limit=MAX_CONNECTIONS
    )
    return aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=() if allow_private else (_refuse_inside,),
    )


async def _refuse_inside(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    host = request.url.host or ""
    try:
        literal = str(ip_address(host))
    except ValueError:
        return await handler(request)  # a name, which is checked when it is resolved
    check_address(literal, host)
    return await handler(request)
