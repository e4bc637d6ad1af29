"""Statuses and error objects mean what the vendors mean by them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import orjson
import pytest

from holdfast.core.errors import ModelErrorKind
from holdfast.providers.failures import from_event, from_response, retry_after


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "llm_bad_request"),
        (401, "llm_authentication"),
        (402, "llm_insufficient_credits"),
        (403, "llm_authentication"),
        (404, "llm_bad_request"),
        (408, "llm_timeout"),
        (422, "llm_bad_request"),
        (429, "llm_rate_limit"),
        (500, "llm_error"),
        (502, "llm_error"),
        (503, "llm_overloaded"),
        (504, "llm_timeout"),
        (529, "llm_overloaded"),
    ],
)
def test_each_status_has_its_kind(status: int, kind: ModelErrorKind) -> None:
    assert from_response("v", status, {}, b"{}").kind == kind


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "message": "Please shorten it."},
        {"message": "This model's maximum context length is 128000 tokens."},
        {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
        {"message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"},
        {"message": "the request exceeds the available context size"},
    ],
)
def test_a_prompt_that_does_not_fit_is_an_overflow(error: dict[str, str]) -> None:
    assert from_response("v", 400, {}, orjson.dumps({"error": error})).kind == "context_overflow"


def test_an_empty_account_is_not_a_rate_limit() -> None:
    body = orjson.dumps({"error": {"code": "insufficient_quota", "message": "You exceeded your current quota."}})
    assert from_response("v", 429, {}, body).kind == "llm_insufficient_credits"


def test_anthropics_empty_account_is_not_a_bad_request() -> None:
    body = orjson.dumps({"error": {"type": "invalid_request_error", "message": "Your credit balance is too low."}})
    assert from_response("v", 400, {}, body).kind == "llm_insufficient_credits"


def test_the_message_names_the_vendor_and_quotes_it() -> None:
    error = from_response("openai", 404, {}, b'{"error":{"message":"No such model."}}')
    assert error.message == "openai: HTTP 404: No such model."


def test_a_body_that_is_not_json_is_quoted_as_it_is() -> None:
    assert "Bad gateway" in from_response("v", 502, {}, b"<h1>Bad gateway</h1>").message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "llm_overloaded"),
        ({"code": 429, "message": "Slow down"}, "llm_rate_limit"),
        ({"code": "rate_limit_exceeded", "message": "Slow down"}, "llm_rate_limit"),
        ({"type": "invalid_request_error", "message": "prompt is too long"}, "context_overflow"),
        ({"message": "Something"}, "llm_error"),
        ("Something", "llm_error"),
    ],
)
def test_an_error_inside_a_stream_has_its_kind(error: object, kind: ModelErrorKind) -> None:
    assert from_event("v", error).kind == kind


def test_the_wait_is_read_from_seconds_milliseconds_or_a_date() -> None:
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert retry_after({"retry-after": "2.5"}) == 2.5
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    assert 55 < (retry_after({"retry-after": in_a_minute}) or 0) <= 60
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({}) is None
