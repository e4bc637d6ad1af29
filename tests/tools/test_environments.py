"""Packages for tools: which requirements are allowed, and that an environment is built once, whole, and read-only."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from holdfast.ports.outbound import AddressRefused
from holdfast.ports.package_requirements import requirement_text
from holdfast.tools.inside.confinement import Tier
from holdfast.tools.packages.confined_command import CommandResult, ConfinedCommand
from holdfast.tools.packages.environments import Environments, InstallFailed, WithPackages, environment_key
from holdfast.tools.sandbox.process_toolbox import ProcessToolbox
from wheels import wheel

from .conftest import options_for
from .processes import job

# ---- allowed requirements -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("requests", None, "requests"),
        ("Pandas", "2.1.0", "pandas==2.1.0"),
        ("my_pkg", ">=2,<3", "my-pkg<3,>=2"),
        ("pandas[excel, aws]>=2", None, "pandas[aws,excel]>=2"),
        (" six ", " ", "six"),
    ],
)
def test_a_requirement_is_written_in_one_form(name: str, version: str | None, text: str) -> None:
    assert requirement_text(name, version) == text


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("--index-url=http://evil.test", None),
        ("-r/etc/passwd", None),
        ("git+https://evil.test/x", None),
        ("x @ https://evil.test/x.whl", None),
        ("x @ file:///tmp/x", None),
        ("../x", None),
        ("./x.whl", None),
        ("/tmp/x", None),
        ("a; rm -rf /", None),
        ("a; python_version > '3'", None),
        ("a", "1 --index-url=x"),
        ("a", "1; x"),
        ("a\n-r b", None),
        ("a b", None),
        ("", None),
        ("a" * 300, None),
    ],
)
def test_what_an_installer_could_take_for_more_is_refused(name: str, version: str | None) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        requirement_text(name, version)


# ---- building -----------------------------------------------------------------------------------------------


@pytest.fixture
def index(home: Path) -> str:
    """A package index of our own, as files."""
    folder = home.parent / "index"
    wheel(folder, "tides", "1.0", "def turn():\n    return 'at six'\n")
    wheel(folder, "tides", "2.0", "def turn():\n    return 'at seven'\n")
    source_only = folder / "sourceonly"
    source_only.mkdir()
    (source_only / "sourceonly-1.0.tar.gz").write_bytes(b"not even an archive")
    (source_only / "index.html").write_text('<a href="sourceonly-1.0.tar.gz">sourceonly-1.0.tar.gz</a>')
    return folder.as_uri()


class Installers:
    """Runs commands confined by the toolbox, and records them."""

    def __init__(self, toolbox: ProcessToolbox) -> None:
        self._toolbox = toolbox
        self.commands: list[ConfinedCommand] = []

    async def __call__(self, command: ConfinedCommand) -> CommandResult:
        self.commands.append(command)
        return await self._toolbox.run_confined_command(command)


@pytest.fixture
def installers(toolbox: ProcessToolbox) -> Installers:
    return Installers(toolbox)


@pytest.fixture
async def environments(tier: Tier, home: Path, index: str, installers: Installers) -> AsyncIterator[Environments]:
    made = Environments(home, installers, index=index, python=options_for(tier)["python"])
    yield made
    await made.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder that other users can pass through, as a data folder must be where tools run as another user."""
    with tempfile.TemporaryDirectory(prefix="holdfast-environments-") as name:
        Path(name).chmod(0o711)
        yield Path(name) / "environments"
        for root, _folders, _files in os.walk(name):
            os.chmod(root, 0o700)


TURN = """
def tool():
    import tides
    return tides.turn()
"""


async def test_a_tool_imports_what_it_asked_for_and_each_version_has_its_own_place(
    toolbox: ProcessToolbox, environments: Environments, installers: Installers
) -> None:
    ready = WithPackages(toolbox, environments)
    said: list[str] = []
    for version, expected in (("1.0", "at six"), ("2.0", "at seven"), ("1.0", "at six")):
        outcome = await ready.run(job(TURN, pip_requirements=(f"tides=={version}",), progress=said.append))
        assert (outcome.status, outcome.content) == ("success", expected)
    assert len(installers.commands) == 2
    assert said == [f"Installing tides=={version} for the tool tool" for version in ("1.0", "2.0")]
    assert (await toolbox.run(job(TURN))).status == "error"  # and other tools do not see them


async def test_many_calls_at_once_wait_for_one_build(
    toolbox: ProcessToolbox, environments: Environments, installers: Installers
) -> None:
    ready = WithPackages(toolbox, environments)
    outcomes = await asyncio.gather(*(ready.run(job(TURN, pip_requirements=("tides",))) for _ in range(8)))
    assert {outcome.content for outcome in outcomes} == {"at seven"}
    assert len(installers.commands) == 1


async def test_two_servers_on_one_folder_build_once(tier: Tier, home: Path, index: str, installers: Installers) -> None:
    both = [Environments(home, installers, index=index, python=options_for(tier)["python"]) for _ in range(2)]
    places = await asyncio.gather(*(one.install(("tides",)) for one in both))
    assert places[0] == places[1]
    assert len(installers.commands) == 1


async def test_an_environment_is_read_only_and_holds_nothing_but_packages(environments: Environments) -> None:
    place = await environments.install(("tides",))
    assert sorted(path.name for path in place.parent.iterdir()) == ["packages"]
    assert (place / "tides.py").stat().st_mode & 0o222 == 0
    assert place.stat().st_mode & 0o222 == 0


class IndexServer(SimpleHTTPRequestHandler):
    """Serves a folder as a package index over HTTP, and records the requests."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


async def test_packages_come_from_a_network_index_only_through_the_proxy(
    toolbox: ProcessToolbox, tier: Tier, home: Path, index: str, installers: Installers
) -> None:
    names: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        names.append(host)
        if host != "packages.test":
            raise AddressRefused(f"{host} is not allowed.")
        return ["127.0.0.1"]

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(IndexServer, directory=index.removeprefix("file://"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        python, port = options_for(tier)["python"], server.server_address[1]
        allowed, refused = (
            Environments(home / host, installers, index=f"http://{host}.test:{port}", resolve=resolve, python=python)
            for host in ("packages", "elsewhere")
        )
        outcome = await WithPackages(toolbox, allowed).run(job(TURN, pip_requirements=("tides==2.0",)))
        with pytest.raises(InstallFailed, match=r"tides==2\.0"):
            await refused.install(("tides==2.0",))
        server.shutdown()
    await asyncio.gather(allowed.close(), refused.close())
    assert (outcome.status, outcome.content) == ("success", "at seven")
    assert IndexServer.asked[0].startswith("/tides")
    assert set(names) == {"packages.test", "elsewhere.test"}


async def test_a_tool_cannot_change_its_environment(toolbox: ProcessToolbox, environments: Environments) -> None:
    source = """
def tool():
    import os, tides
    open(tides.__file__, "a").write("evil")
"""
    outcome = await WithPackages(toolbox, environments).run(job(source, pip_requirements=("tides",)))
    assert outcome.status == "error"
    place = environments.ready(("tides",))
    assert place is not None
    assert "evil" not in (place / "tides.py").read_text()


@pytest.mark.parametrize(
    ("requirement", "says"),
    [("nonesuch", "nonesuch"), ("tides==9", "tides==9"), ("sourceonly", "sourceonly")],
)
async def test_what_cannot_be_installed_is_a_clear_error_and_leaves_nothing(
    toolbox: ProcessToolbox, environments: Environments, home: Path, requirement: str, says: str
) -> None:
    with pytest.raises(InstallFailed, match=says):
        await WithPackages(toolbox, environments).run(job(TURN, pip_requirements=(requirement,)))
    assert [name for name in os.listdir(home) if not name.endswith(".lock")] == []


async def test_environments_have_a_bound_together(environments: Environments, home: Path) -> None:
    await environments.install(("tides==1.0",))
    environments.max_bytes = 1
    with pytest.raises(InstallFailed, match=f"more than 1 bytes .* can remove folders from {home}"):
        await environments.install(("tides==2.0",))
    assert (await environments.install(("tides==1.0",))).is_dir()


async def test_what_a_crash_left_half_built_is_thrown_away(environments: Environments, home: Path) -> None:
    left = home / f"{environment_key(('tides',))}.building"
    left.mkdir(parents=True)
    (left / "rubbish").write_text("x")
    place = await environments.install(("tides",))
    assert not left.exists()
    assert not (place.parent / "rubbish").exists()


async def test_a_cancelled_call_does_not_cancel_the_build_for_the_others(
    environments: Environments, installers: Installers
) -> None:
    first = asyncio.create_task(environments.install(("tides",)))
    await asyncio.sleep(0)
    second = asyncio.create_task(environments.install(("tides",)))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).is_dir()
    assert len(installers.commands) == 1


async def test_the_installer_gets_none_of_the_servers_environment(
    environments: Environments, installers: Installers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-private")
    await environments.install(("tides",))
    assert "sk-private" not in str(installers.commands)
    assert "OPENAI_API_KEY" not in installers.commands[0].environment


async def test_without_uv_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.tools.packages.environments.find_uv", lambda: None)

    async def never(_command: ConfinedCommand) -> CommandResult:
        raise AssertionError("nothing is run")

    with pytest.raises(InstallFailed, match=r"holdfast-server\[packages\]"):
        await Environments(tmp_path, never).install(("tides",))


async def test_waiting_for_packages_is_not_counted_into_the_tools_time(
    toolbox: ProcessToolbox, environments: Environments, installers: Installers
) -> None:
    class Slow:
        async def __call__(self, command: ConfinedCommand) -> CommandResult:
            end = await installers(command)
            await asyncio.sleep(1.5)
            return end

    environments._run_confined = Slow()
    outcome = await WithPackages(toolbox, environments).run(
        job(TURN, pip_requirements=("tides",), limits={"wall_seconds": 1.4})
    )
    assert outcome.content == "at seven"
