"""Create the demo agent on the first start: it uses the built-in model and has one tool, which needs approval."""

from __future__ import annotations

from holdfast.core.records import Actor
from holdfast.records.agent_patch import NewAgent
from holdfast.records.agents import Agents
from holdfast.records.tools import NewTool, Tools

AGENT_NAME = "DemoTeller"
TOOL_NAME = "transfer_money"
SOURCE = '''\
def transfer_money(amount: float, to: str) -> str:
    """Transfer money to somebody. Only pretends to, but asks you first as if it were real.

    Args:
        amount: How much to transfer, in euros.
        to: Who gets it.
    """
    return f"Transferred {amount:.2f} euros to {to}."
'''
SYSTEM = """\
You are a bank teller in a rehearsal. You can transfer money with the tool transfer_money; a person has to approve
each transfer. Say what you did in one sentence."""


async def make(agents: Agents, tools: Tools, actor: Actor) -> str:
    """Create the demo agent with its tool, and return the agent's id."""
    tool = await tools.put(actor, NewTool(source_code=SOURCE, default_requires_approval=True))
    return await agents.create(
        actor,
        NewAgent(
            name=AGENT_NAME,
            description="Try me: say “call transfer_money with 50 to 'Ann'”, then approve or deny it.",
            system=SYSTEM,
            model="demo/rehearsal",
            tool_ids=[tool.id],
            include_base_tools=False,
            tags=["demo"],
        ),
    )
