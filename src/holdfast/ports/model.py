"""The interface of a model provider, and of the directory that finds a model by its handle.

Implemented in `providers/`; the contract suite `holdfast.testing.model_contract` checks every implementation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from holdfast.core.model import Delta, ModelInfo, ModelRequest


class Model(Protocol):
    """A configured provider that can be called."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Call the model. Yields deltas in order, `ReplyDone` last; raises `ModelError` otherwise.

        Closing the generator (`aclosing`) closes the vendor's connection at once.
        """
        ...

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        """The request body that `stream` sends to the vendor for this request, without credentials."""
        ...

    async def list_models(self) -> Sequence[ModelInfo]:
        """The models that this provider offers now. Raises `ModelError` if it does not respond."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class CountsTokens(Protocol):
    """A provider whose vendor can count the tokens of a request. That is slow, so runs never use it."""

    async def count_tokens(self, request: ModelRequest) -> int:
        """The tokens of the whole prompt. Raises `ModelError` if the vendor does not respond."""
        ...


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A resolved handle: the provider to call, and what is known about the model."""

    model: Model
    info: ModelInfo


class ModelDirectory(Protocol):
    """Finds models by handle (`openai/gpt-4o-mini`) among the server's providers and those of an organisation."""

    async def find(self, handle: str, org_id: str) -> FoundModel:
        """Raises `UnknownHandle` if there is none."""
        ...

    async def list_models(self, org_id: str) -> Sequence[ModelInfo]: ...

    async def close(self) -> None: ...
