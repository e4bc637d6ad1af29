"""Makes a guarded aiohttp session, for the model providers that users bring; they speak HTTP themselves.

The same rules as in `guarded_client`, for each hop: the resolver refuses names with addresses that are not public, and
the middleware refuses such IP addresses in the URL (aiohttp resolves only names). Both run again after a redirect,
although the model providers follow none. Bodies are not decompressed.
"""

from __future__ import annotations

from ipaddress import ip_address

import aiohttp

from holdfast.outbound.guarded_resolver import GuardedResolver, check_address

MAX_CONNECTIONS = 1000


def guarded_session(*, allow_private: bool) -> aiohttp.ClientSession:
    """A new session. Call it inside the event loop that uses the session; the caller closes it."""
    connector = aiohttp.TCPConnector(
        resolver=GuardedResolver(allow_private=allow_private), use_dns_cache=False, limit=MAX_CONNECTIONS
    )
    return aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        middlewares=() if allow_private else (_refuse_private_address,),
    )


async def _refuse_private_address(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    host = request.url.host or ""
    try:
        address = str(ip_address(host))
    except ValueError:
        return await handler(request)  # a name; the resolver checks it
    check_address(address, host)
    return await handler(request)
