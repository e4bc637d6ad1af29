"""The server's own files: other users of the machine cannot open them, and tools neither see nor are given them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from holdfast.app.private_files import hidden_from_tools
from holdfast.settings import Settings
from holdfast.tools.inside.confinement import Tier
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox
from server_fixture import StartedAnew
from tools.conftest import options_for
from tools.processes import run

READ = """
import os
def tool(paths: list[str]) -> dict:
    said = {}
    for path in paths:
        try:
            said[path] = open(path, "rb").read().decode("latin-1") or "empty"
        except OSError as error:
            said[path] = "refused"
    return said
"""
IN_THE_DATA_FOLDER = ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "holdfast.db.lock", "encryption.key")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(folder: Path) -> dict[str, str]:
    """Everything in the folder that another user may open, by its mode."""
    found = [path for path in folder.rglob("*") if path.name != "log" and not path.is_symlink()]
    return {str(path): f"{mode_of(path):o}" for path in found if mode_of(path) & 0o077}


def with_a_secret(url: str) -> None:
    """An agent with a secret, for which the server makes its key."""
    made = httpx.post(f"{url}/v1/agents/", json={"model": "demo/rehearsal", "secrets": {"TOKEN": "value"}}, timeout=30)
    assert made.status_code == 200, made.text


def test_a_new_servers_files_are_closed_to_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with StartedAnew(f"sqlite:///{data}/holdfast.db", data) as server:
        with_a_secret(server.url)
        assert all((data / name).exists() for name in IN_THE_DATA_FOLDER)
        assert open_to_others(data) == {}
        assert not mode_of(data) & 0o066


def test_what_an_older_version_left_open_is_closed_at_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with StartedAnew(f"sqlite:///{data}/holdfast.db", data) as server:
        with_a_secret(server.url)
    data.chmod(0o755)
    (data / "processes").chmod(0o755)
    for name in ("holdfast.db", "holdfast.db.lock", "encryption.key"):
        (data / name).chmod(0o644)
    with StartedAnew(f"sqlite:///{data}/holdfast.db", data) as server:
        assert open_to_others(data) == {}
        assert not mode_of(data) & 0o066
        log = server.log_path.read_text()
    assert f"could reach {data}/holdfast.db (mode 644)" in log


def test_the_folder_of_a_database_elsewhere_is_left_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    with StartedAnew(f"sqlite:///{shared}/x.db", tmp_path / "data"):
        assert mode_of(shared) == 0o755
        assert open_to_others(shared) == {}


def holdfast(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from holdfast.cli import main; raise SystemExit(main())", *words]
    given = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)


def test_a_backup_is_closed_to_others(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    assert holdfast("migrate", "--database", url).returncode == 0
    made = holdfast("backup", str(tmp_path / "copy.db"), "--database", url)
    assert made.returncode == 0, made.stderr
    assert open_to_others(tmp_path) == {}


@pytest.mark.parametrize("tools", ["data", "", "data/within", "elsewhere", "link", "accounts"])
def test_a_tool_folder_with_the_servers_files_is_refused(tmp_path: Path, tools: str) -> None:
    for name in ("data/within", "elsewhere", "accounts"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    account = tmp_path / "accounts/vertex.json"
    account.write_text("{}")
    given = {
        "HOLDFAST_DATA_DIR": str(tmp_path / "data"),
        "HOLDFAST_DATABASE": f"sqlite:///{tmp_path}/elsewhere/x.db",
        "HOLDFAST_TOOL_FOLDERS": f"/nowhere:{tmp_path / tools}",
        "GOOGLE_APPLICATION_CREDENTIALS": str(account),
        "HOLDFAST_PORT": "0",
    }
    refused = holdfast("serve", **given)
    assert refused.returncode == 1
    assert f"HOLDFAST_TOOL_FOLDERS names {tmp_path / tools}" in refused.stderr
    assert "Traceback" not in refused.stderr
    told = holdfast("doctor", **given)
    assert told.returncode == 1
    assert "HOLDFAST_TOOL_FOLDERS" in told.stdout


@pytest.mark.parametrize("folder", [sys.prefix, sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), "/"])
def test_a_tool_folder_with_code_that_the_server_runs_is_refused(tmp_path: Path, folder: str) -> None:
    refused = holdfast("serve", HOLDFAST_DATA_DIR=str(tmp_path / "data"), HOLDFAST_TOOL_FOLDERS=folder)
    assert refused.returncode == 1
    assert "include code that this server runs" in refused.stderr


def test_a_tool_folder_in_another_one_is_refused(tmp_path: Path) -> None:
    """A tool could rename the inner one and put a link to the server's files in its place."""
    (tmp_path / "outer/inner").mkdir(parents=True)
    folders = f"{tmp_path}/outer:{tmp_path}/outer/inner"
    refused = holdfast("serve", HOLDFAST_DATA_DIR=str(tmp_path / "data"), HOLDFAST_TOOL_FOLDERS=folders)
    assert refused.returncode == 1
    assert f"{tmp_path}/outer/inner, which is {tmp_path}/outer or lies in it" in refused.stderr


def test_a_data_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = holdfast("serve", HOLDFAST_DATA_DIR=str(tmp_path / "file/data"), HOLDFAST_PORT="0")
    assert refused.returncode == 1
    assert "HOLDFAST_DATA_DIR" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.fixture
def shown_to_tools() -> Iterator[Path]:
    """A folder below /usr, which every tool can read."""
    if not os.access("/usr/share", os.W_OK):
        pytest.skip("only root can make files below /usr")
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", dir="/usr/share") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.mark.parametrize("tier", ["A", "B"])
async def test_files_below_usr_are_hidden_from_tools(tier: Tier, shown_to_tools: Path, scratch: Path) -> None:
    database, account, key = (shown_to_tools / name for name in ("db/x.db", "vertex.json", "client.key"))
    database.parent.mkdir(mode=0o755)
    private = [*(Path(f"{database}{end}") for end in ("", "-wal", "-shm")), account, key]
    for path in [*private, shown_to_tools / "open.txt"]:
        path.write_text("secret")
        path.chmod(0o644)
    given = {"GOOGLE_APPLICATION_CREDENTIALS": str(account), "HOLDFAST_DATA_DIR": str(shown_to_tools / "data")}
    urls = [f"sqlite:///{database}", f"postgresql://nobody@127.0.0.1/none?sslkey={key}"]
    hidden: list[Path] = []
    for url in urls:
        hidden += hidden_from_tools(Settings.from_environment({**given, "HOLDFAST_DATABASE": url}))
    toolbox = ProcessToolbox(scratch_root=scratch, hidden=hidden, **options_for(tier))
    if not (await toolbox.isolation()).runs:
        pytest.skip(f"tier {tier} cannot be had here")
    paths = [*map(str, private), str(shown_to_tools / "open.txt")]
    outcome = await run(toolbox, READ, {"paths": paths})
    await toolbox.close()
    said = json.loads(str(outcome.content))
    assert said.pop(paths[-1]) == "secret"  # the folder itself is shown
    assert set(said.values()) <= {"refused", "empty"}, said
