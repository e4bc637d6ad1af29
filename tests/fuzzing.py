"""A seeded fuzzer of HTTP requests: every route with odd paths, queries, headers and bodies.

`Fuzzer(seed, routes, world).request(number)` always gives the same request for the same seed, number and ids in the
world. Bodies follow the pydantic model of the route, so that many pass the first checks, and are then mutated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from urllib.parse import quote

import orjson
from pydantic import BaseModel

from holdfast.api.app import MODULES

ODD_TEXTS = (
    *("", " ", "\t\n", "null", "true", "-1", "0", "1e999", "NaN", "9" * 40, "1.5", "default", "..", "../../etc/passwd"),
    *("%", "%00", "a" * 300, "é", "😀" * 20, "\u202e", "\x01", "'; DROP TABLE runs; --", '"', "\\", "{", "[", "<b>"),
    *("agent-", "run-1", "x/y", "x y", "*", "$ref", "__proto__", "2026-13-45", "2026-01-01T00:00:00", "2026-01-01"),
    *("call the tool with 3", "(a+)+$", "/say hello", "/call x {", "demo/rehearsal", "demo/none", "openai/none"),
)
ODD_URLS = (
    "",
    "http://",
    "http://[::1",
    "http://127.0.0.1:1/x",
    "http://127.0.0.1:x",
    "http://u:p@127.0.0.1",
    "ftp://x",
    "//",
    "http://\x00",
)
ODD_NUMBERS = (0, -1, 1, 2, 10, 2**31, 2**53 + 1, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308)
ODD_PATHS = (
    b"%ff%fe",
    b"%00",
    b"%2e%2e%2f",
    b"..;/",
    b"%c3%28",
    b"a" * 4000,
    b"%F0%9F%98%80",
    b"x%0d%0ay: z",
    b"%25",
    b";",
    b"~",
)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "FOO")
HEADERS = {
    "last-event-id": ("x", "-1", "9" * 40, "1", "\xff"),
    "idempotency-key": ("k", "k" * 300, "\xe9", ""),
    "user_id": ("bob", "user-00000000-0000-4000-8000-000000000000", "\xff"),
    "x-stainless-retry-count": ("0", "1", "x", "9" * 30, "\xb2"),
    "x-stainless-package-version": ("1.0", ""),
    "user-agent": ("", "letta/python 1", "curl/8", "\xff" * 50),
    "accept": ("text/html", "*/*;q=x", ""),
    "accept-encoding": ("gzip", "identity;q=0"),
    "content-encoding": ("gzip", "br", "x"),
    "authorization": ("Bearer x", "Basic", "\xff"),
    "range": ("bytes=0-0",),
    "if-none-match": ("*",),
    "origin": ("null", "http://evil.example"),
    "sec-fetch-site": ("cross-site", "none"),
    "x-forwarded-for": ("1.2.3.4", "x" * 200, "\xff"),
    "x-forwarded-proto": ("https", "x"),
    "expect": ("100-continue", "x"),
    "cookie": ("a=b", "=" * 200),
}
CONTENT_TYPES = (
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/xml",
    "",
)
PATH_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    query: tuple[str, ...]
    body: type[BaseModel] | None


@dataclass(frozen=True)
class Request:
    head: bytes
    body: bytes

    def __str__(self) -> str:
        return f"{self.head[:600]!r} … {self.body[:600]!r} ({len(self.body)} bytes)"


def routes_of(openapi: Mapping[str, Any]) -> list[Route]:
    """Every route in the server's OpenAPI document, with the model of its body if it has one."""
    models = _models()
    found = []
    for path, methods in openapi["paths"].items():
        for method, told in methods.items():
            query = tuple(one["name"] for one in told.get("parameters", ()) if one["in"] == "query")
            found.append(Route(method.upper(), path, query, models.get((method.upper(), path))))
    return found


def _models() -> dict[tuple[str, str], type[BaseModel]]:
    """The models of request bodies, from the endpoints' signatures: the OpenAPI document does not have them."""
    found: dict[tuple[str, str], type[BaseModel]] = {}
    for module in MODULES:
        for route in module.router.routes:
            endpoint, path = getattr(route, "endpoint", None), getattr(route, "path", "")
            for hint in get_type_hints(endpoint, include_extras=True).values() if endpoint else ():
                inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    found |= {(method, path): inner for method in getattr(route, "methods", ())}
    return found


class Fuzzer:
    def __init__(self, seed: int, routes: Sequence[Route], world: Mapping[str, Sequence[str]], host: str) -> None:
        self._seed = seed
        self._routes = routes
        self._world = world  # real ids by the name of their path parameter
        self._host = host

    def request(self, number: int) -> Request:
        random = Random(f"{self._seed} {number}")
        route = self._routes[number % len(self._routes)]  # each in turn
        method = route.method if random.random() < 0.95 else random.choice(METHODS)
        body, headers = self._body(random, route), {"host": self._host, "connection": "close"}
        if body and random.random() < 0.97:
            headers["content-type"] = "application/json"
        elif body:
            headers["content-type"] = random.choice(CONTENT_TYPES)
        while random.random() < 0.25:
            name = random.choice(list(HEADERS))
            headers[name] = random.choice(HEADERS[name])
        if body and random.random() < 0.1:
            headers["transfer-encoding"] = "chunked"
            body = _chunked(random, body)
        elif body or method in ("POST", "PUT", "PATCH"):
            headers["content-length"] = str(len(body))
        target = self._path(random, route) + self._query(random, route)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")
        return Request(method.encode() + b" " + target + b" HTTP/1.1\r\n" + lines + b"\r\n", body)

    # ---- paths and queries ------------------------------------------------------------------------------------------

    def _path(self, random: Random, route: Route) -> bytes:
        def filled(found: re.Match[str]) -> str:
            known = self._world.get(found[1], ())
            # DELETE rarely gets a real id, since other requests still need these records.
            if known and random.random() < (0.75 if route.method != "DELETE" else 0.01):
                return quote(random.choice(known))
            return f"\0{random.randrange(2)}"

        text = PATH_PARAMETER.sub(filled, route.path)
        path = b"".join(
            random.choice(ODD_PATHS)
            if piece == "1"
            else quote(random.choice(ODD_TEXTS), safe="").encode()
            if piece == "0"
            else piece.encode()
            for piece in re.split(r"\0([01])", text)
        )
        return path + (b"/" if random.random() < 0.1 else b"") if random.random() < 0.97 else b"/latest" + path

    def _query(self, random: Random, route: Route) -> bytes:
        pairs: list[str] = []
        for name in route.query:
            if random.random() < 0.3:
                pairs += [f"{name}={quote(self._text(random, name))}"] * (1 if random.random() < 0.9 else 300)
        if random.random() < 0.05:
            pairs.append(
                random.choice(("=", "&&", "a", "limit=%ff", "%00=%00", "x=" + "y" * 5000, "a[]=1", "limit=1;order=x"))
            )
        return ("?" + "&".join(pairs)).encode() if pairs else b""

    def _text(self, random: Random, name: str) -> str:
        if name in self._world and random.random() < 0.5:
            return random.choice(self._world[name])
        if random.random() < 0.3:
            return str(random.choice(ODD_NUMBERS))
        return random.choice((*ODD_TEXTS, "asc", "desc", "created_at", "true", "5"))

    # ---- bodies -----------------------------------------------------------------------------------------------------

    def _body(self, random: Random, route: Route) -> bytes:
        if route.method in ("GET", "DELETE") and random.random() < 0.95:
            return b""
        chance = random.random()
        if chance < 0.1:
            return random.choice(
                (b"", b"{}", b"[]", b"null", b"0", b'""', b"{", b"\xff\xfe", b"\xef\xbb\xbf{}", b"{}{}")
            )
        data = self._object(random, route)
        raw = orjson.dumps(data)
        if chance < 0.15:
            return raw[: random.randrange(len(raw) + 1)]
        if chance < 0.18:
            return raw.decode().encode(random.choice(("utf-16", "utf-32", "utf-7")))
        if chance < 0.22:
            place = random.randrange(len(raw) + 1)
            return raw[:place] + bytes(random.randrange(256) for _ in range(random.randrange(1, 9))) + raw[place:]
        if chance < 0.24:
            depth = random.choice((50, 99, 100, 101, 254, 300, 480, 600, 1000, 2000, 50_000))
            deep = b"[" * depth + b"]" * depth if random.random() < 0.5 else b'{"a":' * depth + b"1" + b"}" * depth
            name = random.choice(list(data) or ["metadata"])
            return b"{" + orjson.dumps(name) + b":" + deep + b"}"
        if chance < 0.25:
            name = random.choice(list(data) or ["messages"])
            item = random.choice((b"0", b"[]", b"{}", b'""', b"null"))
            return (
                b"{" + orjson.dumps(name) + b":[" + b",".join([item] * random.choice((1001, 15_000, 400_000))) + b"]}"
            )
        if chance < 0.26:
            name = random.choice(list(data) or ["input"])
            return orjson.dumps({**data, name: random.choice(("x", "é", "\n", " a", "<system-reminder>")) * 300_000})
        return raw

    def _object(self, random: Random, route: Route) -> dict[str, Any]:
        if route.body is None:
            names = ("agent_id", "compaction_settings", "model", "model_settings", "summary", "archived", "hidden")
            return {name: self._anything(random, 2) for name in names if random.random() < 0.3}
        schema = route.body.model_json_schema()
        made = self._value(random, schema, schema.get("$defs", {}), "", 0)
        return made if isinstance(made, dict) else {}

    def _value(self, random: Random, schema: Mapping[str, Any], defs: Mapping[str, Any], name: str, depth: int) -> Any:
        if depth and random.random() < 0.08:
            return self._anything(random, 2)
        if "$ref" in schema:
            schema = defs[schema["$ref"].rpartition("/")[2]]
        for union in ("anyOf", "oneOf"):
            if union in schema:
                return self._value(random, random.choice(schema[union]), defs, name, depth)
        if "const" in schema or "enum" in schema:
            return random.choice(schema.get("enum") or [schema["const"]])
        match schema.get("type"):
            case "object" if "properties" in schema:
                wanted = schema.get("required", ())
                return {
                    key: self._value(random, inner, defs, key, depth + 1)
                    for key, inner in schema["properties"].items()
                    if random.random() < (0.9 if key in wanted else 0.15)
                }
            case "object":
                return {random.choice(ODD_TEXTS): self._anything(random, 2) for _ in range(random.randrange(3))}
            case "array":
                count = random.choice((0, 1, 1, 1, 2, 3))
                return [self._value(random, schema.get("items", {}), defs, name, depth + 1) for _ in range(count)]
            case "string":
                return self._string(random, name)
            case "integer" | "number":
                return random.choice([number for number in ODD_NUMBERS if abs(number) < 2**63])
            case "boolean":
                return random.random() < 0.5
            case "null":
                return None
            case _:
                return self._anything(random, 2)

    def _string(self, random: Random, name: str) -> str:
        if "url" in name:
            return random.choice(ODD_URLS)
        if name in self._world and random.random() < 0.7:
            return random.choice(self._world[name])
        if name in ("source_code", "code") and random.random() < 0.7:
            return random.choice(SOURCES)
        if name == "model" and random.random() < 0.8:
            return "demo/rehearsal"
        return random.choice(ODD_TEXTS)

    def _anything(self, random: Random, depth: int) -> Any:
        kind = random.randrange(6 if depth else 4)
        if kind == 0:
            return random.choice(ODD_TEXTS)
        if kind == 1:
            return random.choice([number for number in ODD_NUMBERS if abs(number) < 2**63])
        if kind in (2, 3):
            return random.choice((None, True, False))
        if kind == 4:
            return [self._anything(random, depth - 1) for _ in range(random.randrange(4))]
        names = ("type", "name", "a", "parameters", "properties", *ODD_TEXTS[:12])
        return {random.choice(names): self._anything(random, depth - 1) for _ in range(random.randrange(4))}


SOURCES = (
    'def a(x: int) -> str:\n    """Say.\n\n    Args:\n        x: a number\n    """\n    return str(x)\n',
    "def a(x):\n    return x\n",
    "class A: pass\n",
    "def (",
    "x = 1\n" * 50,
    "def a(*b, **c) -> None: ...",
    'def a(x: "list[dict[str, int | None]]" = [{}]) -> str:\n    """:param x: y"""\n    return ""\n',
)


def _chunked(random: Random, body: bytes) -> bytes:
    pieces: list[bytes] = []
    read = 0
    while read < len(body) and len(pieces) < 20:
        size = random.randrange(1, 1 + len(body) - read)
        pieces.append(b"%x\r\n" % size + body[read : read + size] + b"\r\n")
        read += size
    end = random.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"zz\r\n"))
    return b"".join(pieces) + end


RAW = (
    b"\r\n\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET http://127.0.0.1/v1/agents/ HTTP/1.1\r\n\r\n",
    b"GET /v1/agents/ HTTP/1.1\r\n\r\n",
    b"GET /v1/agents/ HTTP/1.0\r\n\r\n",
    b"GET //v1//agents HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\nhost: evil.example\r\n\r\n",
    b"GET /v1/agents/\xff HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\n: x\r\n\r\n",
    b"GET /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\nx\xff: y\r\n\r\n",
    b"GET /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"GET /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"POST /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -1\r\n\r\n",
    b"POST /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: \xb2\r\n\r\n",
    b"POST /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
    b"POST /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: gzip\r\n\r\nxx",
    b"OPTIONS * HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 50,
)
