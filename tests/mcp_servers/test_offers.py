"""From the tools that a server offers to stored tools, and from stored tools to requests: the pure parts."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from holdfast.core.conversation.messages import Image, Text
from holdfast.core.http_headers import unsendable
from holdfast.core.records import Actor, McpServer
from holdfast.core.tools.call_arguments import parse_arguments
from holdfast.ports.stores.mcp_server_store import OfferedTool
from holdfast.ports.toolbox import ToolOutcome
from holdfast.records.mcp.mcp_tools import ANYTHING, NAME_CHARACTERS, parameters_of, reconciled
from holdfast.tools.mcp.server_address import filled

PIXEL = "iVBORw0KGgo="
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACTOR = Actor("org", "user")
SERVER = McpServer(
    id="mcp_server-1", org_id="org", server_name="shop", kind="sse", revision="1", created_at=NOW, updated_at=NOW
)
PLAIN = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def offer(name: str, **schema: object) -> OfferedTool:
    return OfferedTool(name, f"Does {name}.", schema or PLAIN)


def test_what_is_offered_for_the_first_time_is_added_and_then_stays_the_same() -> None:
    first = reconciled(ACTOR, SERVER, [offer("add"), offer("pay")], NOW, [], frozenset())
    assert [tool.name for tool in first.added] == ["add", "pay"]
    again = reconciled(ACTOR, SERVER, [offer("pay"), offer("add")], NOW, first.added, frozenset())
    assert (again.added, again.changed, again.gone) == ((), (), ())


def test_a_new_description_changes_a_tool_and_nothing_that_users_set() -> None:
    (old,) = reconciled(ACTOR, SERVER, [offer("add")], NOW, [], frozenset()).added
    old = replace(old, default_requires_approval=True, on_unknown="retry", metadata={**(old.metadata or {}), "mine": 1})
    (new,) = reconciled(ACTOR, SERVER, [OfferedTool("add", "Adds.", PLAIN)], NOW, [old], frozenset()).changed
    assert (new.id, new.description, new.default_requires_approval, new.on_unknown) == (old.id, "Adds.", True, "retry")
    assert (new.metadata or {})["mine"] == 1


def test_what_is_no_longer_offered_is_gone() -> None:
    old = reconciled(ACTOR, SERVER, [offer("add"), offer("pay")], NOW, [], frozenset()).added
    assert [tool.name for tool in reconciled(ACTOR, SERVER, [offer("add")], NOW, old, frozenset()).gone] == ["pay"]


def test_names_are_free_writable_and_not_ours() -> None:
    offers = [offer("add"), offer("memory_insert"), offer("a b/c"), offer("x" * 300), offer("x" * 299), offer("")]
    names = [tool.name for tool in reconciled(ACTOR, SERVER, offers, NOW, [], frozenset({"add"})).added]
    assert names[:3] == ["shop_add", "shop_memory_insert", "a_b_c"]
    assert len(set(names)) == len(names)
    assert all(0 < len(name) <= NAME_CHARACTERS for name in names)


def test_of_two_offers_with_one_name_the_first_counts() -> None:
    twice = [OfferedTool("add", "The first.", PLAIN), OfferedTool("add", "The second.", PLAIN)]
    (only,) = reconciled(ACTOR, SERVER, twice, NOW, [], frozenset()).added
    assert only.description == "The first."


def test_references_in_a_schema_are_written_out() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"place": {"$ref": "#/$defs/Place", "description": "Where."}},
        "required": ["place", "unheard of"],
        "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    }
    assert parameters_of(schema) == {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "description": "Where.",
            }
        },
        "required": ["place"],
    }


def test_a_type_that_contains_itself_ends_somewhere() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "value": {"type": "string"}}}
    schema = {"type": "object", "properties": {"list": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    parameters = parameters_of(schema)
    assert "$ref" not in str(parameters)
    deep = '{"list": {"value": "a", "next": {"value": "b", "next": {"value": "c"}}}}'
    assert parse_arguments(deep, parameters)["list"]["next"]["value"] == "b"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{n}": {"description": "x" * 1000} for n in range(200)}},
        {
            "properties": {"a": {"$ref": "#/$defs/0"}},
            "$defs": {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 10} for n in range(20)},
        },
    ],
    ids=["huge", "references that multiply"],
)
def test_a_schema_that_is_too_much_becomes_any_object(schema: dict[str, object]) -> None:
    assert parameters_of(schema) == ANYTHING


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": None}, {"properties": [], "required": 7}])
def test_half_a_schema_is_made_whole(schema: dict[str, object]) -> None:
    assert parameters_of(schema) == {"type": "object", "properties": {}, "required": []}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("Bearer {{ KEY }}", "Bearer s3cret"),
        ("{{KEY}}", "s3cret"),
        ("{{ OTHER | fallback }}", "fallback"),
        ("{{ OTHER | }}", ""),
        ("{{ KEY | fallback }}", "s3cret"),
        ("{{ OTHER }}", None),
        ("{{ not a name }}", "{{ not a name }}"),
    ],
)
def test_templates_are_filled_with_an_agents_secrets(text: str, expected: str | None) -> None:
    assert filled(text, {"KEY": "s3cret"}) == expected


def test_results_are_text_or_parts_within_bounds() -> None:
    results = importlib.import_module("holdfast.tools.mcp.results")
    types = importlib.import_module("mcp_types")

    def outcome(*content: object, **more: object) -> ToolOutcome:
        made: ToolOutcome = results.outcome(types.CallToolResult(content=list(content), **more))
        return made

    text = types.TextContent(type="text", text="a\0b\ud800")
    image = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
    assert outcome(text).content == "a\N{REPLACEMENT CHARACTER}b?"
    assert outcome(structured_content={"a": 1}).content == '{"a": 1}'
    assert outcome(text, is_error=True).status == "error"
    assert outcome(text, image).content == (
        Text("a\N{REPLACEMENT CHARACTER}b?"),
        Image(data=PIXEL, media_type="image/png"),
    )
    for bad in ({"data": "not base64!"}, {"data": "AAAA"}, {"data": ""}, {"data": "A" * 9_000_000}):
        (part,) = [outcome(image.model_copy(update=bad)).content]
        assert isinstance(part, str)
        assert "not shown" in part


def test_a_secret_cannot_begin_another_header() -> None:
    text = filled("{{ KEY }}", {"KEY": "x\r\nX-Admin: yes"})
    assert unsendable({"X-Key": text or ""}) == "X-Key"


def test_starting_the_server_does_not_import_the_package() -> None:
    heavy = "{'mcp', 'mcp_types', 'httpx2'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, holdfast.app, holdfast.cli.serve; assert not {heavy}, {heavy}"]
    )
    assert done.returncode == 0
