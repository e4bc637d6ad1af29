"""The endpoints of the Letta API that Holdfast does not serve, and the search for a path among them.

`api.unknown_paths` asks it when no route matches, to tell an endpoint that is not supported from a wrong path. A row of
an endpoint that is served by now does no harm.
"""

from __future__ import annotations

PREFIX = "/v1/"
ANY_SEGMENT = "{}"
ANY_REST = "{*}"
ANY_METHOD = "*"

# Of the vendor's cloud; the retired server did not have them either.
OF_THE_CLOUD = frozenset({"client-side-access-tokens", "environments", "metadata", "schedule", "templates"})

# A path below /v1 and its methods.
_TABLE = """
_internal_agents/{}/core-memory/blocks/{} PATCH
_internal_blocks GET POST
_internal_blocks/{} DELETE
_internal_blocks/{}/agents GET
_internal_templates/agents POST
_internal_templates/blocks POST
_internal_templates/blocks/batch POST
_internal_templates/deployment/{} DELETE GET
_internal_templates/groups POST
admin/orgs DELETE GET PATCH POST
admin/users DELETE GET POST PUT
agents/import POST
agents/{}/export GET POST
agents/{}/files GET
agents/{}/files/close-all PATCH
agents/{}/files/{}/close PATCH
agents/{}/files/{}/open PATCH
agents/{}/folders/attach/{} PATCH
agents/{}/folders/detach/{} PATCH
agents/{}/groups GET
agents/{}/identities/attach/{} PATCH
agents/{}/identities/detach/{} PATCH
agents/{}/schedule GET POST
agents/{}/schedule/{} DELETE GET
agents/{}/sources GET
agents/{}/sources/attach/{} PATCH
agents/{}/sources/detach/{} PATCH
anthropic/v1/messages POST
anthropic/v1/{*} *
auth POST
blocks/{}/identities/attach/{} PATCH
blocks/{}/identities/detach/{} PATCH
chat/completions POST
client-side-access-tokens GET POST
client-side-access-tokens/{} DELETE
embeddings/total_storage_size GET
environments GET
environments/register POST
environments/{}/messages POST
environments/{} GET
folders POST
folders/count GET
folders/metadata GET
folders/name/{} GET
folders/{} DELETE GET PATCH
folders/{}/agents GET
folders/{}/files GET
folders/{}/files/{} GET
folders/{}/passages GET
folders/{}/upload POST
folders/{}/{} DELETE
git/{*} *
groups GET POST
groups/count GET
groups/{} DELETE GET PATCH
groups/{}/blocks/attach/{} PATCH
groups/{}/blocks/detach/{} PATCH
groups/{}/messages GET
groups/{}/messages/{} PATCH
groups/{}/reset-messages PATCH
identities GET POST PUT
identities/count GET
identities/{} DELETE GET PATCH
identities/{}/agents GET
identities/{}/blocks GET
identities/{}/properties PUT
jobs GET
jobs/active GET
jobs/{} DELETE GET
jobs/{}/cancel PATCH
messages/batches GET POST
messages/batches/{} GET
messages/batches/{}/cancel PATCH
messages/batches/{}/messages GET
metadata/balance GET
sandbox-config GET POST
sandbox-config/e2b/default POST
sandbox-config/environment-variable/{} DELETE PATCH
sandbox-config/local POST
sandbox-config/local/default POST
sandbox-config/local/recreate-venv POST
sandbox-config/{} DELETE PATCH
sandbox-config/{}/environment-variable GET POST
sources GET POST
sources/count GET
sources/metadata GET
sources/name/{} GET
sources/{} DELETE GET PATCH
sources/{}/agents GET
sources/{}/files GET
sources/{}/files/{} GET
sources/{}/passages GET
sources/{}/upload POST
sources/{}/{} DELETE
steps/{}/transaction/{} PATCH
templates POST
templates/{} DELETE PATCH
templates/{}/rollback POST
templates/{}/save POST
templates/{}/agents POST
tools/generate-tool POST
tools/mcp/oauth/callback GET
voice-beta/{}/chat/completions POST
zai/v1/messages POST
zai/v1/{*} *
"""


def _segments(path: str) -> list[str]:
    return path.strip("/").split("/")


_ROWS = [
    (_segments(path), methods.split()) for path, _, methods in (row.partition(" ") for row in _TABLE.split("\n")[1:-1])
]


def is_unserved(method: str, path: str) -> bool:
    """Whether the Letta API has this endpoint."""
    asked = _segments(path.removeprefix(PREFIX)) if path.startswith(PREFIX) else []
    return any(_matches(row, asked) for row, methods in _ROWS if method in methods or ANY_METHOD in methods)


def is_of_the_cloud(path: str) -> bool:
    return not OF_THE_CLOUD.isdisjoint(_segments(path.removeprefix(PREFIX))[:3])


def rows() -> list[tuple[str, str]]:
    """Every method and path pattern, for tests."""
    return [(method, PREFIX + "/".join(row)) for row, methods in _ROWS for method in methods]


def _matches(row: list[str], asked: list[str]) -> bool:
    if row[-1] == ANY_REST:
        row, asked = row[:-1], asked[: len(row) - 1]
    return len(row) == len(asked) and all(part in (ANY_SEGMENT, given) for part, given in zip(row, asked, strict=True))
