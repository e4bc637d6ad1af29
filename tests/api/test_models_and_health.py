"""The first requests of a client: the list of models, and the health check with its version."""

import re

from letta_client import Letta

MODEL = "demo/rehearsal"


def test_models_are_listed_with_what_clients_read(client: Letta) -> None:
    (model,) = client.models.list()
    assert (model.handle, model.max_context_window, model.provider_type) == (MODEL, 128_000, "demo")
    assert client.models.list(provider_name="nobody") == []
    assert client.models.embeddings.list() == []


def test_health_names_the_version_that_clients_compare(client: Letta) -> None:
    health = client.health()
    assert health.status == "ok"
    assert re.fullmatch(r"\d+\.\d+\.\d+", health.version)
