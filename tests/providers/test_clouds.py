"""What Amazon and Google add to the APIs: signatures, frames, tokens, addresses."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from holdfast.core.errors import Invalid, ModelError
from holdfast.core.model import ReplyDone
from holdfast.ports.model import Model
from holdfast.providers.clouds.aws_signing import AwsKeys, AwsSigner, FrameSplitter
from holdfast.providers.clouds.google_token import GoogleTokens
from holdfast.providers.factory import make
from holdfast.providers.http.client import Http
from holdfast.testing.model_contract import simple_request
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Say
from holdfast.testing.wire_formats.cloud_wires import frame

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


async def talk(model: Model, named: str) -> None:
    async with aclosing(model.stream(replace(simple_request("hello"), model=named))) as stream:
        assert isinstance([delta async for delta in stream][-1], ReplyDone)
    await model.close()


async def test_the_signature_is_the_one_that_amazon_publishes_for_this_request() -> None:
    """`get-vanilla` of the Signature Version 4 test suite."""
    keys = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    then = datetime(2015, 8, 30, 12, 36, 0, tzinfo=UTC)
    signer = AwsSigner(keys, "us-east-1", "service", now=lambda: then)
    headers = await signer.headers("GET", "https://example.amazonaws.com/", b"")
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, "
        "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    )


async def test_the_query_is_signed_in_order() -> None:
    """`get-vanilla-query-order-key-case` of the same suite."""
    keys = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    signer = AwsSigner(keys, "us-east-1", "service", now=lambda: datetime(2015, 8, 30, 12, 36, 0, tzinfo=UTC))
    headers = await signer.headers("GET", "https://example.amazonaws.com/?Param2=value2&Param1=value1", b"")
    assert headers["authorization"].endswith("b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500")


async def test_bedrock_is_called_by_the_models_name_in_the_url_quoted_as_it_was_signed() -> None:
    extras = {"region": "eu-west-1", "access_key": "AKID", "secret_key": "secret", "session_token": "token"}
    async with ModelServer(always=[Say("Hi")]) as server:
        model = make("bedrock", base_url=server.url, extras=extras)
        await talk(model, "us.anthropic.claude-sonnet-4-5-v1:0")
        [received] = server.received
    assert received.path == "/model/us.anthropic.claude-sonnet-4-5-v1:0/invoke-with-response-stream"
    assert "Credential=AKID/" in received.headers["authorization"]
    assert received.headers["x-amz-security-token"] == "token"
    assert received.body["anthropic_version"] == "bedrock-2023-05-31"
    assert not {"model", "stream"} & received.body.keys()


async def test_bedrock_accepts_its_own_api_keys_and_needs_complete_key_pairs() -> None:
    async with ModelServer(always=[Say("Hi")]) as server:
        await talk(make("bedrock", api_key="abc", base_url=server.url, extras={"region": "r"}), "anthropic.claude")
        assert server.received[0].headers["authorization"] == "Bearer abc"
    with pytest.raises(Invalid, match="needs its access_key too"):
        make("bedrock", extras={"region": "r", "secret_key": "s"})


async def test_bedrock_lists_callable_models_and_anthropic_profiles() -> None:
    async with ModelServer() as server:
        model = make("bedrock", api_key="abc", base_url=server.url, extras={"region": "r"})
        listed = {info.name: info for info in await model.list_models()}
        await model.close()
    assert set(listed) == {"anthropic.claude-sonnet-4-5-v1:0", "us.anthropic.claude-sonnet-4-5-v1:0"}
    assert listed["us.anthropic.claude-sonnet-4-5-v1:0"].context_window == 200_000


def test_frames_may_be_cut_anywhere() -> None:
    events = [orjson.dumps({"type": "ping", "n": n}) for n in range(3)]
    payloads = [orjson.dumps({"bytes": base64.b64encode(event).decode()}) for event in events]
    stream = b"".join(frame({":message-type": "event", ":event-type": "chunk"}, one) for one in payloads)
    for size in (1, 7, 64, len(stream)):
        splitter = FrameSplitter()
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [event.data for chunk in chunks for event in splitter.feed(chunk)] == events


def test_a_damaged_frame_is_an_error() -> None:
    whole = frame({":message-type": "event"}, b'{"bytes":""}')
    with pytest.raises(ModelError, match="damaged on its way"):
        FrameSplitter().feed(whole[:-5] + b"x" + whole[-4:])
    with pytest.raises(ModelError, match="impossible lengths"):
        FrameSplitter().feed(b"<html>" + whole)


def test_an_exception_in_a_frame_is_an_error_event() -> None:
    said = frame({":message-type": "exception", ":exception-type": "throttlingException"}, b'{"message":"Slow."}')
    [event] = FrameSplitter().feed(said)
    assert orjson.loads(event.data) == {"type": "error", "error": {"type": "throttlingException", "message": "Slow."}}


class TokenServer:
    """Google's token endpoint: counts what it is asked and hands out numbered tokens."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.url = ""

    async def give(self, request: web.Request) -> web.Response:
        self.asked.append({name: values[0] for name, values in parse_qs(await request.text()).items()})
        return web.json_response({"access_token": f"token-{len(self.asked)}", "expires_in": 3600})


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    given = TokenServer()
    app = web.Application()
    app.router.add_post("/token", given.give)
    async with TestServer(app) as server:
        given.url = str(server.make_url("/token"))
        yield given


def account(url: str, **fields: Any) -> dict[str, Any]:
    return {"type": "service_account", "client_email": "a@b", "private_key": PEM, "token_uri": url, **fields}


async def test_a_service_account_signs_for_a_token_and_keeps_it_for_its_hour(tokens: TokenServer) -> None:
    now = [1_000_000.0]
    http = Http("google_vertex")
    given = GoogleTokens(http, account(tokens.url), clock=lambda: now[0])
    for moment in (0, 3000):
        now[0] = 1_000_000 + moment
        assert await given.headers("POST", "https://x", b"") == {"authorization": "Bearer token-1"}
    now[0] = 1_000_000 + 3301
    assert await given.headers("POST", "https://x", b"") == {"authorization": "Bearer token-2"}
    await http.close()
    unsigned, _, signature = tokens.asked[0]["assertion"].rpartition(".")
    KEY.public_key().verify(
        base64.urlsafe_b64decode(signature + "=="), unsigned.encode(), padding.PKCS1v15(), hashes.SHA256()
    )
    claims = orjson.loads(base64.urlsafe_b64decode(unsigned.split(".")[1] + "=="))
    assert (claims["iss"], claims["aud"], claims["exp"] - claims["iat"]) == ("a@b", tokens.url, 3600)


async def test_a_saved_login_trades_its_refresh_token(tokens: TokenServer) -> None:
    login = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}
    http = Http("google_vertex")
    await GoogleTokens(http, login | {"token_uri": tokens.url}).headers("GET", "https://x", b"")
    await http.close()
    assert tokens.asked == [
        {"grant_type": "refresh_token", "client_id": "i", "client_secret": "s", "refresh_token": "r"}
    ]


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ("gemini-2.5-flash", "google/models/gemini-2.5-flash:streamGenerateContent"),
        ("claude-sonnet-4-5", "anthropic/models/claude-sonnet-4-5:streamRawPredict"),
    ],
)
async def test_vertex_calls_each_publishers_model_in_the_project(
    tokens: TokenServer, tmp_path: Path, named: str, path: str
) -> None:
    file = tmp_path / "account.json"
    file.write_bytes(orjson.dumps(account(tokens.url)))
    extras = {"project": "p", "location": "europe-west1", "credentials": str(file)}
    async with ModelServer(always=[Say("Hi")]) as server:
        await talk(make("google_vertex", base_url=server.url, extras=extras), named)
        [received] = server.received
    assert received.path == f"/v1/projects/p/locations/europe-west1/publishers/{path}"
    assert received.headers["authorization"] == "Bearer token-1"
    assert "model" not in received.body


async def test_a_user_brings_an_account_itself_and_never_a_file_or_the_machines_own(tmp_path: Path) -> None:
    file = tmp_path / "account.json"
    file.write_bytes(orjson.dumps(account("https://x")))
    async with aiohttp.ClientSession() as guarded:
        extras = {"project": "p", "location": "global"}
        with pytest.raises(Invalid, match="needs credentials"):
            make("google_vertex", extras=extras, session=guarded)
        with pytest.raises(Invalid, match="must be a service account's JSON"):
            make("google_vertex", extras={**extras, "credentials": str(file)}, session=guarded)
        with pytest.raises(Invalid, match="need client_email, private_key"):
            make("google_vertex", api_key='{"type":"service_account"}', extras=extras, session=guarded)
        assert make("google_vertex", api_key=file.read_text(), extras=extras, session=guarded)


async def test_vertex_lists_the_conversing_models_of_both_publishers() -> None:
    login = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}
    async with ModelServer() as server:
        app = web.Application()
        given = TokenServer()
        app.router.add_post("/token", given.give)
        async with TestServer(app) as token_server:
            url = str(token_server.make_url("/token"))
            extras = {
                "project": "p",
                "location": "global",
                "credentials": orjson.dumps(login | {"token_uri": url}).decode(),
            }
            model = make("google_vertex", base_url=server.url, extras=extras)
            assert [info.handle for info in await model.list_models()] == [
                "google_vertex/gemini-2.5-flash",
                "google_vertex/claude-sonnet-4-5",
            ]
            await model.close()


@pytest.mark.parametrize(
    ("version", "path"),
    [(None, "/openai/v1/chat/completions"), ("2024-10-21", "/openai/deployments/ours/chat/completions")],
)
async def test_azure_is_openais_api_at_its_resource_with_its_own_header(version: str | None, path: str) -> None:
    extras = {"api_version": version} if version else {}
    async with ModelServer(always=[Say("Hi")]) as server:
        model = make("azure", api_key="secret", base_url=server.url, extras=extras)
        await talk(model, "ours")
        [received] = server.received
    assert (received.path, received.headers["api-key"]) == (path, "secret")
    assert "authorization" not in received.headers
