"""Agents' secrets: how clients set and read them, and how they are stored."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from letta_client import Letta
from sqlalchemy import text

from holdfast.storage.sql.database import make_engine

MODEL = "demo/rehearsal"
SECRET = "sk-very-private-4711"


def stored(database_url: str) -> str:
    engine = make_engine(database_url)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT document FROM agents")).scalars().all()
    engine.dispose()
    return str(found)


def of(client: Letta, agent_id: str) -> dict[str, str]:
    agent = client.agents.retrieve(agent_id, include=["agent.secrets"])
    assert agent.secrets == agent.tool_exec_environment_variables
    return {secret.key: secret.value for secret in agent.secrets or []}


def test_a_secret_is_read_back_and_is_nowhere_in_the_database(client: Letta, database_url: str) -> None:
    agent = client.agents.create(model=MODEL, secrets={"KEY": SECRET})
    assert {secret.key: secret.value for secret in agent.secrets or []} == {"KEY": SECRET}
    assert of(client, agent.id) == {"KEY": SECRET}
    assert client.agents.retrieve(agent.id).secrets == []
    assert SECRET not in stored(database_url)
    assert "sealed." in stored(database_url)


def test_an_update_replaces_all_secrets_and_leaving_them_out_keeps_them(client: Letta, database_url: str) -> None:
    agent = client.agents.create(model=MODEL, secrets={"A": "1", "B": SECRET})
    client.agents.update(agent.id, name="Renamed")
    assert of(client, agent.id) == {"A": "1", "B": SECRET}
    client.agents.update(agent.id, secrets={"C": SECRET})
    assert of(client, agent.id) == {"C": SECRET}
    client.agents.update(agent.id, secrets={})
    assert of(client, agent.id) == {}


def test_the_older_name_sets_the_same_secrets_and_the_newer_wins(client: Letta) -> None:
    agent = client.agents.create(
        model=MODEL, tool_exec_environment_variables={"A": "old", "B": "only"}, secrets={"A": "new"}
    )
    assert of(client, agent.id) == {"A": "new", "B": "only"}


def test_a_secret_stored_in_plain_text_is_read_and_encrypted_with_its_next_write(
    client: Letta, database_url: str
) -> None:
    agent = client.agents.create(model=MODEL, secrets={"KEY": "later"})
    engine = make_engine(database_url)
    with engine.begin() as connection:
        document = connection.execute(text("SELECT document FROM agents")).scalar_one()
        sealed = str(document).split("sealed.")[1].split('"')[0].split("'")[0]
        change = text("UPDATE agents SET document = REPLACE(CAST(document AS TEXT), :sealed, :plain)")
        if engine.dialect.name == "postgresql":
            change = text("UPDATE agents SET document = REPLACE(CAST(document AS TEXT), :sealed, :plain)::jsonb")
        connection.execute(change, {"sealed": f"sealed.{sealed}", "plain": SECRET})
    engine.dispose()
    assert SECRET in stored(database_url)
    assert of(client, agent.id) == {"KEY": SECRET}
    client.agents.update(agent.id, secrets=of(client, agent.id))
    assert SECRET not in stored(database_url)
    assert of(client, agent.id) == {"KEY": SECRET}


@pytest.mark.parametrize("secrets", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0y"}, {"A": 1}, ["A"]])
def test_a_name_or_value_that_no_environment_can_hold_is_refused(http: httpx.Client, secrets: object) -> None:
    answer = http.post("/v1/agents", json={"model": MODEL, "secrets": secrets})
    assert answer.status_code == 422
    assert http.get("/v1/agents/count").json() == 0


def test_without_a_key_postgres_refuses_to_store_secrets_and_sqlite_makes_its_own(
    database_url: str, tmp_path: Path, serving_without_a_key: str
) -> None:
    with Letta(base_url=serving_without_a_key, api_key="any", max_retries=0) as client:
        if database_url.startswith("sqlite"):
            agent = client.agents.create(model=MODEL, secrets={"KEY": SECRET})
            assert of(client, agent.id) == {"KEY": SECRET}
            assert (tmp_path / "encryption.key").stat().st_mode & 0o777 == 0o600
            assert SECRET not in stored(database_url)
            return
        with pytest.raises(Exception, match="HOLDFAST_ENCRYPTION_KEY"):
            client.agents.create(model=MODEL, secrets={"KEY": SECRET})
        assert list(client.agents.list()) == []
        client.agents.create(model=MODEL)  # an agent without secrets needs no encryption key
