"""Archives and their passages, which are agents' long-term memory."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from holdfast.api.openapi.shapes.common import Authors, Done, Json


class Archive(Authors):
    id: str
    name: str
    description: str | None
    vector_db_provider: str
    embedding_config: Json | None
    metadata: Json | None


class Passage(Authors):
    id: str
    archive_id: str | None
    text: str
    tags: list[str]
    metadata: Json
    embedding: list[float] | None
    embedding_config: Json | None
    source_id: str | None
    file_id: str | None
    file_name: str | None
    is_deleted: bool


class FoundPassage(TypedDict):
    passage: Passage
    score: float
    metadata: Json


class FoundMemory(TypedDict):
    id: str
    timestamp: str
    content: str
    tags: list[str]


class FoundMemories(TypedDict):
    results: list[FoundMemory]
    count: int


_MEMORY = "/v1/agents/{agent_id}/archival-memory"

RESPONSES: dict[str, Any] = {
    "GET /v1/archives": list[Archive],
    "POST /v1/archives": Archive,
    "GET /v1/archives/{archive_id}": Archive,
    "PATCH /v1/archives/{archive_id}": Archive,
    "POST /v1/archives/{archive_id}/passages": Passage,
    "POST /v1/archives/{archive_id}/passages/batch": list[Passage],
    "POST /v1/passages/search": list[FoundPassage],
    f"GET {_MEMORY}": list[Passage],
    f"POST {_MEMORY}": list[Passage],
    f"GET {_MEMORY}/search": FoundMemories,
    f"DELETE {_MEMORY}/{{memory_id}}": Done,
}
