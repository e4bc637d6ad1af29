"""Clients that send half a request, or too many connections: they are cut off, and others are served meanwhile."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from holdfast.testing.server import ServerProcess

HEAD_SECONDS, BODY_SECONDS = 0.5, 1.0
MOST_CONNECTIONS = 60
HALF_REQUESTS = 40
POST = "POST /v1/agents/ HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("slow")
    limits = {
        "HOLDFAST_REQUEST_HEAD_SECONDS": str(HEAD_SECONDS),
        "HOLDFAST_REQUEST_BODY_SECONDS": str(BODY_SECONDS),
        "HOLDFAST_MAX_CONNECTIONS": str(MOST_CONNECTIONS),
    }
    with ServerProcess(f"sqlite:///{folder}/holdfast.db", **limits) as server:
        yield server
        assert "Traceback" not in server.log_path.read_text()


def connected(server: ServerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def answer(connection: socket.socket) -> tuple[int, str]:
    """Everything until the server closes: the status and the body."""
    data = b""
    with suppress(ConnectionResetError):  # the server closed while some of what was sent was not read yet
        while piece := connection.recv(65536):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def post(server: ServerProcess, *headers: str) -> bytes:
    start = POST.format(host=f"127.0.0.1:{server.port}")
    return (start + "".join(f"{line}\r\n" for line in headers)).encode()


@pytest.mark.parametrize("sent", ["", "GET /v1/agents/ HT", "GET /v1/agents/ HTTP/1.1\r\nhost: 127.0.0.1\r\nx-a: b"])
def test_a_head_that_does_not_arrive_in_time_is_refused(server: ServerProcess, sent: str) -> None:
    with connected(server) as connection:
        connection.sendall(sent.encode())
        began = time.monotonic()
        status, body = answer(connection)
    assert (status, "head" in json.loads(body)["detail"]) == (408, True)
    assert time.monotonic() - began < HEAD_SECONDS + 5


def test_a_head_that_comes_byte_by_byte_gets_no_more_time(server: ServerProcess) -> None:
    with connected(server) as connection:
        connection.settimeout(HEAD_SECONDS / 10)
        began = time.monotonic()
        for letter in post(server) + b"x-padding: " + b"x" * 1000:
            try:
                connection.sendall(bytes([letter]))
                if connection.recv(1000):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert time.monotonic() - began < HEAD_SECONDS + 5


@pytest.mark.parametrize("length", ["content-length: 100", "transfer-encoding: chunked"])
def test_a_body_that_does_not_arrive_in_time_is_refused(server: ServerProcess, length: str) -> None:
    with connected(server) as connection:
        connection.sendall(post(server, length) + b"\r\n" + (b'{"name' if "length" in length else b'2\r\n{"\r\n'))
        status, body = answer(connection)
    assert (status, "body" in json.loads(body)["detail"]) == (408, True)


def test_a_second_request_on_a_connection_has_the_same_limits(server: ServerProcess) -> None:
    with connected(server) as connection:
        connection.sendall(f"GET /v1/health HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert b"200 OK" in connection.recv(65536)
        connection.sendall(b"GET /v1/hea")
        assert answer(connection)[0] == 408


def test_the_body_of_a_refused_request_may_not_drip_forever(server: ServerProcess) -> None:
    with connected(server) as connection:
        connection.sendall(post(server, "content-length: 1000000", "origin: http://evil.example") + b"\r\n{")
        assert answer(connection)[0] == 403


def test_a_head_that_is_too_large_is_refused(server: ServerProcess) -> None:
    for padding in ("x-a: " + "x" * 70_000, "\r\n".join(f"x-{number}: y" for number in range(10_000))):
        with connected(server) as connection:
            connection.sendall(post(server, padding) + b"\r\n")
            assert answer(connection)[0] == 431


def test_a_head_without_an_end_is_cut_off(server: ServerProcess) -> None:
    with connected(server) as connection:
        connection.sendall(b"GET /")
        with pytest.raises(OSError, match=r"reset|pipe"):
            send_for_long(connection)


def send_for_long(connection: socket.socket) -> None:
    for _ in range(1000):
        connection.sendall(b"a" * 100_000)


def test_a_slow_answer_is_not_a_slow_request(server: ServerProcess) -> None:
    """The time that a run takes, and the pauses of a stream, are not the client's."""
    with httpx.Client(base_url=server.url, timeout=30) as http:
        agent = http.post("/v1/agents/", json={"model": "demo/rehearsal", "include_base_tools": False}).json()["id"]
        said = {"input": f"/slow {round(BODY_SECONDS * 700)}\n/say one two three", "streaming": True}
        streamed = http.post(f"/v1/agents/{agent}/messages", json=said)
    assert streamed.text.endswith("data: [DONE]\n\n")


def test_others_are_served_beside_many_half_requests(server: ServerProcess) -> None:
    with ExitStack() as stack:
        halves = [stack.enter_context(connected(server)) for _ in range(HALF_REQUESTS)]
        for half in halves:
            half.sendall(post(server, "content-length: 50") + b"\r\n{")
        assert httpx.get(f"{server.url}/v1/health").status_code == 200
        assert {answer(half)[0] for half in halves} == {408}


def test_more_connections_than_allowed_are_refused_until_others_have_ended(server: ServerProcess) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(connected(server)) for _ in range(MOST_CONNECTIONS + 10)]
        statuses = [answer(one)[0] for one in reversed(opened)]
    assert statuses.count(503) >= 10
    assert set(statuses) == {503, 408}
    assert httpx.get(f"{server.url}/v1/health").status_code == 200
