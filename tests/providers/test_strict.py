"""Long returns are cut; strict schemas are closed."""

from __future__ import annotations

from holdfast.core.messages import Image, Text
from holdfast.providers.encoding import cut, strict_schema


def test_a_return_in_parts_is_cut_over_all_its_text() -> None:
    image = Image(data="QUJD", media_type="image/png")
    assert cut((Text("12345"), image, Text("67890")), 7) == (Text("12345"), image, Text("67... [truncated 3 chars]"))
    assert cut("12345", None) == cut("12345", 5) == "12345"


def test_a_schema_is_closed_at_every_level() -> None:
    inner = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    schema = {"type": "object", "properties": {"list": {"type": "array", "items": inner}}, "required": ["list"]}
    strict = strict_schema(schema)
    assert strict is not None
    assert strict["additionalProperties"] is False
    assert strict["properties"]["list"]["items"]["additionalProperties"] is False


def test_a_schema_with_an_optional_parameter_has_no_strict_form() -> None:
    assert strict_schema({"type": "object", "properties": {"n": {"type": "integer"}}}) is None
