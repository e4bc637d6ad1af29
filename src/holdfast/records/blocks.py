"""Create and change memory blocks: their defaults and their size limit.

A new block may be larger than its limit, because clients expect that. A change of its value or limit may not leave it
larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.core.errors import Invalid
from holdfast.core.records import Actor, Block
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.stores.block_store import BlockStore
from holdfast.records.sent_fields import sent_fields

KNOWN_DESCRIPTIONS = {
    "human": "What you know about the person you talk with: who they are, what they want, how they like things done. "
    "Keep it up to date as you learn more.",
    "persona": "Who you are: your character, your voice, and how you go about your work.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPatch:
    """The fields of a block that a client may set. None leaves a field as it is."""

    label: str | None = None
    value: str | None = None
    limit: int | None = None
    description: str | None = None
    read_only: bool | None = None
    hidden: bool | None = None
    is_template: bool | None = None
    metadata: dict[str, Any] | None = None
    tags: Sequence[str] | None = None
    project_id: str | None = None
    template_name: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    deployment_id: str | None = None
    entity_id: str | None = None
    preserve_on_migration: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBlock(BlockPatch):
    label: str
    value: str


class Blocks:
    def __init__(self, store: BlockStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, actor: Actor, new: NewBlock) -> Block:
        block = new_block(actor, new, self._clock.now())
        await self._store.create(block)
        return block

    async def change(self, actor: Actor, block_id: str, patch: BlockPatch) -> Block:
        return await self._store.change(actor, block_id, partial(changed_block, actor, patch, self._clock.now()))

    async def change_by_label(self, actor: Actor, agent_id: str, label: str, patch: BlockPatch) -> Block:
        alter = partial(changed_block, actor, patch, self._clock.now())
        return await self._store.change_by_label(actor, agent_id, label, alter)


def new_block(actor: Actor, new: NewBlock, now: datetime) -> Block:
    return Block(
        id=new_id("block"),
        org_id=actor.org_id,
        created_at=now,
        updated_at=now,
        created_by=actor.user_id,
        updated_by=actor.user_id,
        **{"description": KNOWN_DESCRIPTIONS.get(new.label), **_block_fields(new)},
    )


def changed_block(actor: Actor, patch: BlockPatch, now: datetime, block: Block) -> Block:
    after = replace(block, **_block_fields(patch), updated_at=now, updated_by=actor.user_id)
    touches_size = after.value != block.value or after.limit != block.limit
    if touches_size and len(after.value) > after.limit:
        raise Invalid(
            f"Edit failed: Exceeds {after.limit} character limit (requested {len(after.value)}). "
            f"Shorten the value of block {block.label}, or raise its limit."
        )
    return after


def _block_fields(patch: BlockPatch) -> dict[str, Any]:
    sent = sent_fields(patch, BlockPatch)
    return sent if patch.tags is None else sent | {"tags": tuple(dict.fromkeys(patch.tags))}
