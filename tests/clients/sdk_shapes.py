# ruff: noqa: UP006, UP035, UP045 - annotations as users of that SDK write them
"""Create tools with `upsert_from_function` and `add` of an SDK of early 2026, and call each once.

    python sdk_shapes.py URL

It runs in a Python of its own. It exits with 0 if every tool was created and returned the expected value.
"""

from __future__ import annotations

import sys
from typing import Any, List, Optional

from letta_client import Letta
from letta_client.types.tool import BaseTool
from pydantic import BaseModel, Field


class Line(BaseModel):
    sku: str = Field(..., description="What")
    count: int = Field(1, description="How many")


class Order(BaseModel):
    lines: List[Line] = Field(..., description="What is ordered")
    note: Optional[str] = Field(None, description="A note")


def plain(text: str, times: int = 2, loud: Optional[bool] = None) -> str:
    """Repeat.

    Args:
        text (str): What.
        times (int): How often.
        loud (Optional[bool]): Shout.
    """
    import json

    return json.dumps(text * times)


async def later(text: str) -> str:
    """Say it later.

    Args:
        text (str): What.
    """
    import asyncio

    await asyncio.sleep(0)
    return text


def nested(rows: List[dict], names: Optional[List[str]] = None) -> dict:
    """Count.

    Args:
        rows (List[dict]): Rows.
        names (Optional[List[str]]): Names.
    """
    return {"rows": len(rows), "names": names or []}


def order(lines: List[Line], note: Optional[str] = None) -> str:
    """Order.

    Args:
        lines (List[Line]): Lines.
        note (Optional[str]): Note.
    """
    return "+".join(f"{line['sku'] if isinstance(line, dict) else line.sku}" for line in lines)


class Inventory(BaseTool):
    name: str = "inventory"
    args_schema: Any = Order
    description: str = "Look at the inventory."

    def run(self, lines: List[Line], note: Optional[str] = None) -> str:
        """Look."""
        return f"{len(lines)} lines"


def main(url: str) -> None:
    client = Letta(base_url=url, max_retries=0)
    made = [
        client.tools.upsert_from_function(func=plain),
        client.tools.upsert_from_function(func=later),
        client.tools.upsert_from_function(func=nested),
        client.tools.upsert_from_function(func=order, args_schema=Order),
        client.tools.add(tool=Inventory(id="tool-00000000-0000-4000-8000-000000000000")),
    ]
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id for tool in made], include_base_tools=False)
    lines = [{"sku": "a", "count": 2}, {"sku": "b"}]
    wanted = {
        "plain": ({"text": "ab"}, '"abab"'),
        "later": ({"text": "x"}, "x"),
        "nested": ({"rows": [{"a": 1}]}, '{"rows": 1, "names": []}'),
        "order": ({"lines": lines}, "a+b"),
        "inventory": ({"lines": lines}, "2 lines"),
    }
    for name, (arguments, expected) in wanted.items():
        done = client.agents.tools.run(name, agent_id=agent.id, args=arguments)
        assert (done.status, done.func_return) == ("success", expected), (name, done)


if __name__ == "__main__":
    main(sys.argv[1])
