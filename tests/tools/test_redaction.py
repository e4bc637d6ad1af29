"""What redaction removes from a tool's output: a secret in every usual spelling, and its beginning at a cut."""

from __future__ import annotations

import json
import time
from urllib.parse import quote, quote_plus

import pytest

from holdfast.ports.toolbox import ToolOutcome
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox
from holdfast.tools.sandbox.redaction import redacted, redacted_text

from .processes import run

QUOTED = 'it\'s a "quoted" one'
AWKWARD = (
    QUOTED,
    "back\\slash and 'one' and \"two\"",
    "two lines\nof\ta key",
    "schlüssel-für-alle",
    "a+b/c==&d e%f",
    "\\'\\\"\\n-literally",
    "quite-plain-0123",
)


def cleaned(text: str, secret: str) -> str:
    outcome = redacted(ToolOutcome("success", text, stdout=(text,), stderr=(text,)), {"KEY": secret})
    assert outcome.stdout == outcome.stderr == (outcome.content,)
    assert redacted_text(text, {"KEY": secret}) == outcome.content
    return str(outcome.content)


@pytest.mark.parametrize("secret", AWKWARD)
def test_a_secret_is_found_in_every_usual_spelling(secret: str) -> None:
    def spellings(value: str) -> dict[str, str]:
        return {
            "repr": repr(value),
            "ascii": ascii(value),
            "repr in a list": str([value]),
            "repr beside a single quote": repr(f"don't: {value}"),
            "repr beside a double quote": repr(f'say "no": {value}'),
            "repr beside both": repr(f'don\'t say "no": {value}'),
            "repr of bytes": repr(value.encode()),
            "json": json.dumps({"key": value}),
            "json with its letters": json.dumps({"key": value}, ensure_ascii=False),
        }

    for how, text in {"as it is": f"is {secret}!", **spellings(secret)}.items():
        assert "[KEY]" in cleaned(text, secret), how
        for again, twice in spellings(text).items():
            assert "[KEY]" in cleaned(twice, secret), (again, how)
    for text in (quote(secret), quote(secret, safe=""), quote_plus(secret)):
        assert cleaned(f"GET https://example.com/?key={text}&more", secret) == "GET https://example.com/?key=[KEY]&more"


def test_short_values_and_empty_ones_stay() -> None:
    assert redacted_text("true is true", {"FLAG": "true", "NONE": ""}) == "true is true"


def test_the_longer_of_two_secrets_goes_first() -> None:
    secrets = {"SHORT": "abcdefgh", "LONG": "abcdefgh-and-more"}
    assert redacted_text("abcdefgh-and-more abcdefgh", secrets) == "[LONG] [SHORT]"


@pytest.mark.parametrize("secret", ["sk-0123456789abcdef", "pässwörter-überall", QUOTED])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_secret_that_the_output_limit_cuts_shows_no_part_of_it(
    toolbox: ProcessToolbox, secret: str, stream: str
) -> None:
    """Cut at each of its bytes."""
    length = len(secret.encode())
    source = f"""
import os, sys
def tool(before: int):
    out = sys.{stream}
    out.write("." * before + os.environ["KEY"] + "and more " * 100)
    out.flush()
    return "done"
"""
    for shown in range(1, length):
        outcome = await run(
            toolbox,
            source,
            {"before": 4096 - shown},
            environment={"KEY": secret},
            limits={"output_bytes": 4096},
        )
        [text] = getattr(outcome, stream)
        kept, _, note = text.partition("\n[output truncated")
        assert note
        assert set(kept) == {"."}, (shown, kept[-30:])


async def test_a_secret_that_the_limit_of_an_error_cuts_shows_no_part_of_it(toolbox: ProcessToolbox) -> None:
    source = """
import os
def tool(before: int):
    raise ValueError("." * before + os.environ["KEY"] + "and more " * 1000)
"""
    for before in range(3990, 4096):
        outcome = await run(
            toolbox,
            source,
            {"before": before},
            environment={"KEY": "sk-0123456789abcdef"},
            limits={"result_bytes": 4096},
        )
        assert "sk" not in str(outcome.content), before


def test_a_long_name_does_not_make_a_text_long() -> None:
    text = "a" * 1_000_000
    clean = redacted_text(text, {"N" * 20_000: "aaaaaaaa"})
    assert len(clean) <= len(text) + 100
    assert clean.startswith("[" + "N" * 64 + "][")
    assert clean.endswith("[output truncated after redaction]\n")


def test_what_stands_in_the_place_of_a_secret_is_not_redacted_again() -> None:
    assert redacted_text("a secret", {"bbbbbbbb": "a secret", "c": "bbbbbbbb"}) == "[bbbbbbbb]"


def test_the_beginning_of_a_very_long_secret_is_found_at_a_cut_in_no_time() -> None:
    secret = "ab" * 200_000
    cut = "x" + secret[:300_000] + " ... (truncated)"
    assert redacted_text(cut, {"KEY": secret}) == "x ... (truncated)"


def test_as_many_and_as_long_secrets_as_an_agent_may_have_are_searched_for_in_bounded_time() -> None:
    """All of them begin alike, and so does all of the text."""
    secrets = {f"KEY_{number}": "ab" * 2_000 + f"{number:03}" for number in range(200)}
    text = "ab" * 500_000
    began = time.thread_time()
    assert redacted_text(text, secrets) == text
    assert time.thread_time() - began < 10


def test_secrets_that_overlap_leave_nothing_of_either() -> None:
    assert redacted_text("<one-and-two-and-three>", {"A": "one-and-two", "B": "two-and-three"}) == "<[A][B]>"
    assert redacted_text("xx12345678xx", {"A": "12345678", "B": "x12345678"}) == "x[B]xx"
