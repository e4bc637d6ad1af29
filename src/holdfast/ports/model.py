"""The promise of a model provider, and of the directory that finds one by handle.

Implemented in `providers/`; the shipped contract suite (`holdfast.testing.model_contract`) checks every one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from holdfast.core.model import Delta, ModelInfo, ModelRequest


class Model(Protocol):
    """One provider's wire, ready to be called."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Call the model. Yields deltas in order, `ReplyDone` last; raises `ModelError` otherwise.

        Closing the generator (`aclosing`) closes the vendor's connection at once.
        """
        ...

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        """The body that `stream` sends for this request: the vendor's own words, without any credential."""
        ...

    async def list_models(self) -> Sequence[ModelInfo]:
        """What this provider offers now. Raises `ModelError` if it cannot be asked."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class CountsTokens(Protocol):
    """A provider whose vendor counts a request without answering it. Slow: never asked on the path of a run."""

    async def count_tokens(self, request: ModelRequest) -> int:
        """The tokens of the whole prompt. Raises `ModelError` if the vendor cannot be asked."""
        ...


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A handle resolved: whom to call, and what is known about the model."""

    model: Model
    info: ModelInfo


class ModelDirectory(Protocol):
    """Finds models by handle (`openai/gpt-4o-mini`) among the server's own providers and those of an organisation."""

    async def find(self, handle: str, org_id: str) -> FoundModel:
        """Raises `UnknownHandle` if there is none."""
        ...

    async def list_models(self, org_id: str) -> Sequence[ModelInfo]: ...

    async def close(self) -> None: ...
