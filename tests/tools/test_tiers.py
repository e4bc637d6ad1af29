"""Which tier is detected for root and for an ordinary user, with namespaces, landlock and seccomp or without.

Each case is a separate process that gives up privileges before it makes its toolbox.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import denied as give_up
from denied import SOMEBODY, python_for_everyone
from holdfast.tools.inside.confinement import UIDS_PER_ZYGOTE
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox
from holdfast.tools.sandbox.zygote_pool import MAX_ZYGOTES, UIDS_PER_SERVER, first_uid

from .processes import run

PROBE = """
import asyncio, json
from holdfast.ports.toolbox import ToolJob
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox

async def main():
    toolbox = ProcessToolbox(packages=[], run_unconfined=sys.argv[1] == "unconfined")
    source = "import os\\ndef tool():\\n    return os.getuid()"
    outcome = await toolbox.run(ToolJob("call", "tool", source, {}, "key"))
    found = await toolbox.isolation()
    await toolbox.close()
    print(json.dumps([found.tier, found.runs, outcome.status, str(outcome.content), dict(found.why_not)]))

asyncio.run(main())
"""


def probed(denied: str, who: str, unconfined: str = "") -> Any:
    if os.getuid() != 0 and who == "root":
        pytest.skip("only root can be root")
    argv = give_up.argv(PROBE, denied, SOMEBODY if who == "user" else 0, unconfined)
    done = subprocess.run(argv, cwd="/", env=give_up.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("who", ["root", "user"])
def test_namespaces_give_tier_a(who: str) -> None:
    tier, runs, status, uid, why_not = probed("", who)
    if tier != "A" and "unshare" in str(why_not):
        pytest.skip(f"this machine has no namespaces for {who}: {why_not}")
    assert (tier, runs, status) == ("A", True, "success")
    assert uid not in ("0", str(os.getuid() or -1)) or os.getuid() != 0


@pytest.mark.parametrize("who", ["root", "user"])
def test_without_namespaces_it_is_tier_b(who: str) -> None:
    tier, runs, status, uid, why_not = probed("unshare", who)
    assert (tier, runs, status) == ("B", True, "success"), why_not
    assert uid != "0"
    assert "unshare" in why_not["A"]


@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.parametrize("denied", ["unshare landlock", "unshare seccomp"])
def test_without_landlock_or_a_filter_tools_are_refused(who: str, denied: str) -> None:
    tier, runs, status, content, why_not = probed(denied, who)
    assert (tier, runs, status) == ("C", False, "error")
    assert "refuses to run tools with source code (isolation tier C)" in content
    assert "HOLDFAST_RUN_TOOLS_UNCONFINED=true, and every tool can read and change whatever the server can" in content
    assert set(why_not) == {"A", "B"}


@pytest.mark.parametrize("who", ["root", "user"])
def test_an_operator_can_run_tools_unconfined_by_the_name_of_the_risk(who: str) -> None:
    tier, runs, status, _uid, why_not = probed("unshare landlock", who, "unconfined")
    assert (tier, runs, status) == ("C", True, "success"), why_not


def test_servers_on_one_machine_have_users_of_their_own_where_there_are_enough() -> None:
    whole = "         0          0 4294967295\n"
    assert first_uid(whole, pid=1) != first_uid(whole, pid=2)
    assert first_uid(whole, pid=2**22) + UIDS_PER_SERVER < 2**31
    assert first_uid("0 100000 65536\n", pid=1) + MAX_ZYGOTES * UIDS_PER_ZYGOTE < 65534


async def test_the_tier_is_on_the_result_and_described(toolbox: ProcessToolbox) -> None:
    found = await toolbox.isolation()
    outcome = await run(toolbox, "def tool(): ...")
    assert outcome.tier == found.tier
    assert found.described().startswith(f"tier {found.tier}, ")
    assert toolbox.isolation_facts() == {"tier": found.tier, "network": "none", "runs": True}


async def test_an_interpreter_that_another_user_cannot_run_is_reported() -> None:
    if os.getuid() != 0 or python_for_everyone() == sys.executable:
        pytest.skip("this interpreter can be run by everyone")
    toolbox = ProcessToolbox(tiers=("B",))
    found = await toolbox.isolation()
    await toolbox.close()
    assert not found.runs
