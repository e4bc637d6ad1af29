"""Tests of clipping tool returns: which part is clipped, and the note about it."""

from __future__ import annotations

import json

from holdfast.core.conversation.messages import Image, Text
from holdfast.core.tools.return_clipping import clip_content, clip_return


def test_text_is_cut_and_says_how_much_is_missing() -> None:
    assert clip_return("0123456789", 4) == "0123... [truncated 6 chars]"
    assert clip_return("0123", 4) == "0123"


def test_of_an_object_only_the_message_is_cut_so_that_it_stays_json() -> None:
    said = json.dumps({"status": "OK", "message": "x" * 500, "data": "y" * 10})
    cut = json.loads(clip_return(said, 200))
    assert cut["status"] == "OK"
    assert cut["data"] == "y" * 10
    assert cut["message"].endswith(" chars]")
    assert cut["message"].startswith("xxx")


def test_an_object_without_a_message_loses_from_its_longest_text() -> None:
    cut = json.loads(clip_return(json.dumps({"title": "a", "page": "z" * 900, "n": [1, 2]}), 120))
    assert cut["title"] == "a"
    assert cut["n"] == [1, 2]
    assert "[truncated" in cut["page"]


def test_json_that_one_text_cannot_mend_is_cut_as_text() -> None:
    rows = json.dumps(list(range(1000)))
    assert clip_return(rows, 50) == f"{rows[:50]}... [truncated {len(rows) - 50} chars]"
    many = json.dumps({str(n): "some words" for n in range(100)})
    assert clip_return(many, 50).startswith(many[:50])


def test_deep_nesting_is_no_way_to_break_it() -> None:
    assert clip_return("[" * 100_000, 10) == "[[[[[[[[[[... [truncated 99990 chars]"


def test_a_return_in_parts_is_cut_over_all_its_text() -> None:
    image = Image(data="QUJD", media_type="image/png")
    cut = clip_content((Text("12345"), image, Text("67890")), 7)
    assert cut == (Text("12345"), image, Text("67... [truncated 3 chars]"))
    assert clip_content("12345", None) == clip_content("12345", 5) == "12345"
