"""HTTP statuses and error objects of vendors become the right kinds of `ModelError`."""

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


OVERFLOWS = {
    "openai": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "azure": "This model's maximum context length is 128000 tokens. However, your messages resulted in 129000 tokens.",
    "anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "anthropic, with its answer": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "gemini": "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
    "bedrock": "Input is too long for requested model.",
    "openrouter": "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens.",
    "groq": "Please reduce the length of the messages or completion.",
    "mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "deepseek": "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens.",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "together": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097.",
    "hugging face": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000",
    "fireworks": "The prompt is too long: 150000, model maximum context length: 131071",
    "cerebras": "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
    "moonshot": "Invalid request: Your request exceeded model token limit: 131072",
    "zai": "Prompt exceeds max length",
    "minimax": "invalid params, context window exceeds limit",
    "vllm": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "sglang": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "llama.cpp": "the request exceeds the available context size. try increasing the context size",
    "lm studio": "Trying to keep the first 5000 tokens when context the overflows. Provide a shorter input.",
    "ollama": "the input length exceeds the context length",
}


@pytest.mark.parametrize("vendor", OVERFLOWS)
def test_an_overflow_is_known_in_every_vendors_words(vendor: str) -> None:
    error = {"message": OVERFLOWS[vendor], "type": "invalid_request_error"}
    assert from_response(vendor, 400, {}, orjson.dumps({"error": error})).kind == "context_overflow"
    assert from_response(vendor, 500, {}, orjson.dumps({"error": OVERFLOWS[vendor]})).kind == "context_overflow"
    assert from_event(vendor, error).kind == "context_overflow"
    assert from_event(vendor, OVERFLOWS[vendor]).kind == "context_overflow"


def test_a_request_that_is_wrong_otherwise_is_no_overflow() -> None:
    for said in ("max_tokens is too large: 999999.", "Invalid schema for function 'look'.", "messages: at least one"):
        assert from_response("v", 400, {}, orjson.dumps({"error": {"message": said}})).kind == "llm_bad_request"


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
