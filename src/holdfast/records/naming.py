"""A readable name for an agent that nobody named."""

from __future__ import annotations

import secrets

_QUALITIES = """
Amber Brave Calm Clever Coral Curious Deep Eager Gentle Golden Honest Keen Kind Lively Lucid Mellow Misty Nimble
Patient Quiet Rapid Sandy Silver Steady Sunny Tidal Vivid Warm Wise Young
"""
_SEA_LIFE = """
Anemone Barnacle Clam Cormorant Crab Dolphin Eel Heron Kelp Limpet Lobster Manatee Mussel Narwhal Nautilus Octopus
Orca Oyster Pelican Petrel Plankton Porpoise Puffin Seal Squid Starfish Sturgeon Tern Turtle Urchin Whelk Wrasse
"""


def random_agent_name() -> str:
    return secrets.choice(_QUALITIES.split()) + secrets.choice(_SEA_LIFE.split())
