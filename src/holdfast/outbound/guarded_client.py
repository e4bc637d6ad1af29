"""The guarded HTTP client: implements `ports.outbound.Outbound` on aiohttp.

Each hop is checked separately: scheme and address, and again after every redirect. Proxies from the environment are not
used, cookies are not stored, and bodies are neither decompressed nor read past the requested length. A POST follows
only redirects that keep it a POST (307, 308). Another origin gets only headers that are known to hold no credentials.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import aiohttp
from yarl import URL

from holdfast.outbound.guarded_resolver import GuardedResolver, check_address
from holdfast.ports.outbound import AddressRefused, OutboundRequest, OutboundResponse, Unreachable

REDIRECTS = {"GET": frozenset({301, 302, 303, 307, 308}), "POST": frozenset({307, 308})}
# The headers that another origin gets after a redirect. Any other may be a credential, since vendors invent names.
SAFE_HEADERS = frozenset(
    {"accept", "content-type", "user-agent", "webhook-id", "webhook-timestamp", "webhook-signature"}
)
MAX_CONNECTIONS = 100


class GuardedClient:
    def __init__(self, *, allow_private: bool = False) -> None:
        self._allow_private = allow_private
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: OutboundRequest) -> OutboundResponse:
        try:
            async with asyncio.timeout(request.timeout_seconds):
                return await self._follow(request)
        except TimeoutError as late:
            raise Unreachable(f"{request.url} did not answer within {request.timeout_seconds:g} s.") from late
        except (aiohttp.InvalidURL, ValueError) as bad:
            raise AddressRefused(f"{request.url!r} is not a URL that can be called: {bad}") from bad
        except (aiohttp.ClientError, OSError) as broken:
            raise Unreachable(f"{request.url} could not be reached: {broken}") from broken

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _follow(self, request: OutboundRequest) -> OutboundResponse:
        url, headers = URL(request.url), dict(request.headers)
        for _ in range(request.max_redirects + 1):
            self._check(url)
            answer = await self._hop(url, headers, request)
            location = answer.headers.get("location")
            if answer.status not in REDIRECTS[request.method] or location is None:
                return answer
            target = url.join(URL(location))
            if target.origin() != url.origin():
                headers = {name: text for name, text in headers.items() if name.lower() in SAFE_HEADERS}
            url = target
        raise Unreachable(f"{request.url} redirects more than {request.max_redirects} times.")

    def _check(self, url: URL) -> None:
        if url.scheme not in ("http", "https") or not url.host:
            raise AddressRefused(f"{url} is not an http:// or https:// URL.")
        if self._allow_private:
            return
        if (address := _ip_literal(url.host)) is not None:  # a name is checked when it is resolved
            check_address(address, url.host)

    async def _hop(self, url: URL, headers: dict[str, str], request: OutboundRequest) -> OutboundResponse:
        async with self._get_session().request(
            request.method,
            url,
            headers={"accept-encoding": "identity", **headers},
            data=request.body if request.method == "POST" else None,
            allow_redirects=False,
        ) as response:
            body = await _read_up_to(response.content, request.max_bytes + 1)
            complete = len(body) <= request.max_bytes
            if not complete:
                response.close()
            shown = {name.lower(): text for name, text in response.headers.items()}
            return OutboundResponse(response.status, shown, body[: request.max_bytes], str(url), complete)

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=GuardedResolver(allow_private=self._allow_private), use_dns_cache=False, limit=MAX_CONNECTIONS
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"user-agent": "holdfast"},
            )
        return self._session


def _ip_literal(host: str) -> str | None:
    try:
        return str(ip_address(host))
    except ValueError:
        return None


async def _read_up_to(content: aiohttp.StreamReader, length: int) -> bytes:
    body = bytearray()
    while len(body) < length and (chunk := await content.read(length - len(body))):
        body += chunk
    return bytes(body)
