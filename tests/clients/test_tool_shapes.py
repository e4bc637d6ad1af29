"""Many styles of tool source, sent by the official SDK and called on a real server as a model would.

The tools that an older SDK builds from functions and classes are tested in test_old_python_sdk.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from letta_client import Letta

from server_fixture import Served

DATACLASSES = '''
from dataclasses import dataclass, field
from typing import Optional

@dataclass
class Berth:
    number: int
    side: str = "port"

@dataclass
class Ship:
    name: str
    berth: Berth
    flags: list[str] = field(default_factory=list)
    master: Optional[str] = None

def moor(ship: Ship, spare: Optional[Berth] = None) -> dict:
    """Moor a ship.

    Args:
        ship: Which.
        spare: Another berth.
    """
    return {"at": ship.berth.number + 1, "side": ship.berth.side, "kinds": [type(ship).__name__, type(spare).__name__],
            "flags": ship.flags, "master": ship.master}
'''
MODELS = '''
from enum import Enum
from typing import Literal, Union
from pydantic import BaseModel, Field

class Kind(str, Enum):
    BULK = "bulk"
    BOX = "box"

class Item(BaseModel):
    sku: str = Field(description="What.")
    count: int = Field(1, ge=1, description="How many.")

class Cargo(BaseModel):
    items: list[Item]
    kind: Kind = Kind.BOX
    weight: Union[int, float, None] = None

def load(cargo: Cargo, order: Literal["first", "last"] = "last") -> str:
    """Load cargo.

    Args:
        cargo: What to load.
        order: When.
    """
    return f"{sum(item.count for item in cargo.items)} {cargo.kind.name} {cargo.weight} {order}"
'''
SEVERAL = '''
import math
from collections import Counter

KNOTS = 1.852

def _round(value: float) -> int:
    return math.floor(value)

def speed(knots: float) -> str:
    """Say a speed.

    Args:
        knots: How fast.
    """
    import json
    from statistics import mean

    return json.dumps({"kmh": _round(mean([knots, knots]) * KNOTS), "letters": Counter("aab")["a"]})
'''
LATER = '''
async def _fetch(port: str) -> str:
    import asyncio
    await asyncio.sleep(0)
    return port.upper()

async def sound(ports: list[str]) -> list:
    """Sound every port.

    Args:
        ports: Which.
    """
    import asyncio
    return list(await asyncio.gather(*(_fetch(port) for port in ports)))
'''
OPTIONS = '''
def chart(
    depths: list[list[float]], names: dict[str, list[int]], title: str | None = None, deep: bool = False, limit: int = 3
) -> str:
    """Draw a chart.

    Args:
        depths: Rows of depths.
        names: Where they are.
        title: Its title.
        deep: Whether to go on.
        limit: How many rows.
    """
    return f"{len(depths[:limit])} {sum(names['reef'])} {title} {deep} {type(depths[0][0]).__name__}"
'''
SHAPES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "dataclasses": (
        "moor",
        DATACLASSES,
        {"ship": {"name": "Ada", "berth": {"number": 7}, "flags": ["Q"]}, "spare": {"number": 1, "side": "starboard"}},
        '{"at": 8, "side": "port", "kinds": ["Ship", "Berth"], "flags": ["Q"], "master": null}',
    ),
    "pydantic models": (
        "load",
        MODELS,
        {"cargo": {"items": [{"sku": "a", "count": 2}, {"sku": "b"}], "kind": "bulk", "weight": 1.5}},
        "3 BULK 1.5 last",
    ),
    "several functions, imports inside and outside": (
        "speed",
        SEVERAL,
        {"knots": 10},
        '{"kmh": 18, "letters": 2}',
    ),
    "async": ("sound", LATER, {"ports": ["oban", "tarbert"]}, '["OBAN", "TARBERT"]'),
    "defaults, optional and nested types": (
        "chart",
        OPTIONS,
        {"depths": [[1, 2.5], [3]], "names": {"reef": [1, 2]}, "title": None},
        "2 3 None False float",
    ),
}


@pytest.fixture
def client(served: Served) -> Letta:
    return served.client()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tool_of_this_shape_is_called_with_what_its_signature_says(client: Letta, shape: str) -> None:
    name, source, arguments, expected = SHAPES[shape]
    tool = client.tools.upsert(source_code=source, source_type="python")
    assert tool.name == name
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False)
    done = client.agents.tools.run(name, agent_id=agent.id, args=arguments)
    assert (done.status, done.func_return) == ("success", expected)


def test_what_the_models_of_a_tool_refuse_is_a_schema_error(client: Letta) -> None:
    tool = client.tools.upsert(source_code=MODELS)
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False)
    done = client.agents.tools.run("load", agent_id=agent.id, args={"cargo": {"items": [{"count": 2}]}})
    assert done.status == "error"
    assert "do not fit the tool's schema" in str(done.func_return)
