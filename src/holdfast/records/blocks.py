"""Create and change memory blocks: their defaults and their size limit.

A new block may be larger than its limit, because clients expect that. A change of its value or limit may not leave it
larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.core.errors import Invalid
from holdfast.core.records import Actor, Block
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.stores.block_store import BlockStore

KNOWN_DESCRIPTIONS = {
    "human": "What you know about the person you talk with: who they are, what they want, how they like things done. "
    "Keep it up to date as you learn more.",
    "persona": "Who you are: your character, your voice, and how you go about your work.",
}

_SERVER_FIELDS = frozenset({"id", "org_id", "created_at", "updated_at", "created_by", "updated_by"})
_SETTABLE = frozenset(f.name for f in fields(Block)) - _SERVER_FIELDS


class Blocks:
    def __init__(self, store: BlockStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, actor: Actor, given: Mapping[str, Any]) -> Block:
        block = new_block(actor, given, self._clock.now())
        await self._store.create(block)
        return block

    async def change(self, actor: Actor, block_id: str, given: Mapping[str, Any]) -> Block:
        return await self._store.change(actor, block_id, partial(changed_block, actor, given, self._clock.now()))

    async def change_by_label(self, actor: Actor, agent_id: str, label: str, given: Mapping[str, Any]) -> Block:
        alter = partial(changed_block, actor, given, self._clock.now())
        return await self._store.change_by_label(actor, agent_id, label, alter)


def new_block(actor: Actor, given: Mapping[str, Any], now: datetime) -> Block:
    chosen = _settable(given)
    chosen.setdefault("description", KNOWN_DESCRIPTIONS.get(chosen["label"]))
    return Block(
        id=new_id("block"),
        org_id=actor.org_id,
        created_at=now,
        updated_at=now,
        created_by=actor.user_id,
        updated_by=actor.user_id,
        **chosen,
    )


def changed_block(actor: Actor, given: Mapping[str, Any], now: datetime, block: Block) -> Block:
    """The block after a change. A null leaves the field as it is."""
    after = replace(block, **_settable(given), updated_at=now, updated_by=actor.user_id)
    touches_size = after.value != block.value or after.limit != block.limit
    if touches_size and len(after.value) > after.limit:
        raise Invalid(
            f"Edit failed: Exceeds {after.limit} character limit (requested {len(after.value)}). "
            f"Shorten the value of block {block.label}, or raise its limit."
        )
    return after


def _settable(given: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {key: value for key, value in given.items() if key in _SETTABLE and value is not None}
    if "tags" in chosen:
        chosen["tags"] = tuple(dict.fromkeys(chosen["tags"]))
    return chosen
