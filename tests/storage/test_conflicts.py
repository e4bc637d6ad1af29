"""A violated unique constraint has the same name on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, insert, select

from engine.house import opened
from holdfast.core.errors import UniqueConflict
from holdfast.storage.schema.record_tables import runs, tools
from holdfast.storage.schema.run_tables import ONE_ACTIVE_RUN
from holdfast.storage.sql.rows import to_row
from holdfast.testing.script import Say


async def test_a_conflict_names_the_constraint(database_url: str) -> None:
    async with opened(database_url) as house:
        await house.agent("pay")

        def copy_tool(connection: Connection, **other: object) -> None:
            tool = connection.execute(select(tools).where(tools.c.name == "pay")).mappings().one()
            connection.execute(insert(tools), {**tool, **other})

        with pytest.raises(UniqueConflict) as same_id:
            await house.database.write(lambda connection: copy_tool(connection, name="other"))
        with pytest.raises(UniqueConflict) as same_name:
            await house.database.write(lambda connection: copy_tool(connection, id="tool-other"))
    assert same_id.value.constraint == "pk_tools"
    assert same_name.value.constraint == "uq_tools_org_id_name"


async def test_a_second_active_run_of_a_conversation_violates_the_partial_index(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent()
        house.model.script(Say("done"))
        run = await house.finished(conversation)
        active = {**to_row(runs, run), "status": "running", "lease_epoch": 0}

        def insert_twice(connection: Connection) -> None:
            for number in range(2):
                connection.execute(insert(runs), {**active, "id": f"run-{number}"})

        with pytest.raises(UniqueConflict) as raised:
            await house.database.write(insert_twice)
    assert raised.value.constraint == ONE_ACTIVE_RUN
