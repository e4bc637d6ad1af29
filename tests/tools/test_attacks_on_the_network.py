"""Tools that try to reach the network: private addresses are unreachable, and public ones only through the proxy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.outbound.guarded_resolver import GuardedAddresses
from holdfast.tools.inside.confinement import Network, Tier
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

from .conftest import options_for
from .processes import run

INSIDE = """
import os, socket, urllib.error, urllib.request
def tool(port: int) -> dict:
    said = {}
    for host in ("127.0.0.1", "::1", "169.254.169.254", "10.0.0.1", "192.0.2.1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family) as one:
                one.settimeout(2)
                one.connect((host, port))
            said[host] = "connected"
        except OSError as error:
            said[host] = os.strerror(error.errno or 0)
    for name, (family, kind, protocol) in {
        "udp": (socket.AF_INET, socket.SOCK_DGRAM, 0), "udp6": (socket.AF_INET6, socket.SOCK_DGRAM, 0),
        "netlink": (16, socket.SOCK_RAW, 0), "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
        "raw": (socket.AF_INET, socket.SOCK_RAW, 1), "packet": (17, socket.SOCK_RAW, 0), "vsock": (40, 1, 0),
        "mptcp": (socket.AF_INET, socket.SOCK_STREAM, 262), "sctp": (socket.AF_INET, socket.SOCK_STREAM, 132),
    }.items():
        try:
            socket.socket(family, kind, protocol).close()
            said[name] = "made"
        except OSError as error:
            said[name] = os.strerror(error.errno or 0)
    try:
        with socket.socket() as one:
            one.sendto(b"x", 0x20000000, ("127.0.0.1", port))
        said["fast open"] = "sent"
    except OSError as error:
        said["fast open"] = os.strerror(error.errno or 0)
    try:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            one.listen()
        said["listen"] = "listening"
    except OSError as error:
        said["listen"] = os.strerror(error.errno or 0)
    for url in ("http://127.0.0.1:%d/", "http://[::1]:%d/", "http://0x7f.1:%d/", "http://[::ffff:127.0.0.1]:%d/",
                "http://localhost:%d/", "http://169.254.169.254/latest/"):
        try:
            said[url] = urllib.request.urlopen(url % port if "%d" in url else url, timeout=10).read().decode()
        except urllib.error.HTTPError as error:
            said[url] = str(error.code)
        except OSError as error:
            said[url] = "unreachable"
    said["pair"] = len(socket.socketpair())
    return said
"""


@pytest.fixture
async def inside() -> AsyncIterator[int]:
    """The port of a server on this machine that a tool must not reach."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield int(server.sockets[0].getsockname()[1])
    server.close()


@pytest.fixture(params=["public", "none"])
async def bounded(request: pytest.FixtureRequest, tier: Tier, scratch: Path) -> AsyncIterator[ProcessToolbox]:
    """A toolbox with the default network policy, and with none."""
    network: Network = request.param
    resolve = GuardedAddresses(allow_private=False).addresses
    made = ProcessToolbox(scratch_root=scratch, network=network, resolve=resolve, **options_for(tier))
    found = await made.isolation()
    if not found.runs:
        pytest.skip(f"tier {tier} cannot be had here: {found.why_not}")
    yield made
    await made.close()


async def test_and_5_nothing_inside_can_be_reached_by_any_kind_of_socket(bounded: ProcessToolbox, inside: int) -> None:
    outcome = await run(bounded, INSIDE, {"port": inside})
    said = json.loads(str(outcome.content))
    assert said.pop("pair") == 2  # a socket pair does not leave the process, and asyncio needs it
    by_url = {said.pop(url) for url in [name for name in said if name.startswith("http")]}
    assert by_url <= {"403", "502", "unreachable"}
    assert set(said.values()) == {"Permission denied"}


async def allowed(host: str, _port: int) -> list[str]:
    return (
        ["127.0.0.1"] if host == "public.example" else await GuardedAddresses(allow_private=False).addresses(host, 80)
    )


@pytest.fixture
async def with_a_way_out(tier: Tier, scratch: Path) -> AsyncIterator[ProcessToolbox]:
    made = ProcessToolbox(scratch_root=scratch, network="public", resolve=allowed, **options_for(tier))
    found = await made.isolation()
    if not found.runs or found.network != "public":
        pytest.skip(f"tier {tier} with a bounded network cannot be had here: {found}")
    yield made
    await made.close()


async def test_a_public_service_can_be_called_through_the_proxy(with_a_way_out: ProcessToolbox, inside: int) -> None:
    source = """
import http.client, urllib.request
def tool(port: int) -> list:
    plain = urllib.request.urlopen(f"http://public.example:{port}/a?b=c").read().decode()
    tunnel = http.client.HTTPConnection("127.0.0.1", int(__import__("os").environ["HTTP_PROXY"].rpartition(":")[2]))
    tunnel.set_tunnel("public.example", port)
    tunnel.request("GET", "/")
    return [plain, tunnel.getresponse().read().decode()]
"""
    outcome = await run(with_a_way_out, source, {"port": inside})
    assert json.loads(str(outcome.content)) == ["inside", "inside"]


async def test_a_refusal_of_the_proxy_gives_the_reason(with_a_way_out: ProcessToolbox, inside: int) -> None:
    source = """
import socket, urllib.error, urllib.request, os
def tool(port: int) -> list:
    said = []
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/")
    except urllib.error.HTTPError as error:
        said.append(error.read().decode())
    proxy = ("127.0.0.1", int(os.environ["HTTP_PROXY"].rpartition(":")[2]))
    for head in (b"GET / HTTP/1.1\\r\\n\\r\\n", b"CONNECT x HTTP/1.1\\r\\n\\r\\n", b"\\xff\\r\\n\\r\\n",
                 b"GET ftp://a/ HTTP/1.1\\r\\n\\r\\n", b"CONNECT [::1]:70000 HTTP/1.1\\r\\n\\r\\n"):
        with socket.create_connection(proxy) as one:
            one.sendall(head)
            said.append(one.recv(100).decode().splitlines()[0])
    return said
"""
    outcome = await run(with_a_way_out, source, {"port": inside})
    refused, *rest = json.loads(str(outcome.content))
    assert "127.0.0.1 is not a public address" in refused
    assert set(rest) == {"HTTP/1.1 400 Bad Request"}


async def test_the_whole_network_is_there_only_if_it_was_asked_for(tier: Tier, scratch: Path, inside: int) -> None:
    toolbox = ProcessToolbox(scratch_root=scratch, network="full", **options_for(tier))
    source = "import urllib.request\ndef tool(port: int):\n    return urllib.request.urlopen(f'http://127.0.0.1:{port}/').read()"
    outcome = await run(toolbox, source, {"port": inside})
    await toolbox.close()
    assert outcome.content == "inside"
