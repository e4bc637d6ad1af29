"""Tests of start-up with an unusable folder or database: each command prints one sentence and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import denied
from holdfast.storage.schema.migrate import migrate
from holdfast.storage.sql.database import make_engine
from holdfast.testing.postgres import PostgresServer

CODE = "from holdfast.cli import main; raise SystemExit(main())"
COMMANDS = ("serve", "migrate", "audit", "doctor")


def run(command: str, environment: dict[str, str], *, as_ordinary_user: bool = False) -> tuple[int, str]:
    words = [command, *(["--port", "1"] if command == "serve" else [])]
    argv = denied.argv(CODE, "", denied.SOMEBODY, *words) if as_ordinary_user else [sys.executable, "-c", CODE, *words]
    given = {"PATH": os.environ["PATH"], **denied.environment(), **environment}
    done = subprocess.run(
        argv, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout


def assert_told(command: str, code: int, said: str) -> None:
    assert code != 0, said
    assert "Traceback" not in said
    sentences = [line for line in said.splitlines() if line.startswith("holdfast: ") or "FAIL" in line]
    assert len(sentences) == 1, said
    assert "HOLDFAST_DATA_DIR" in sentences[0], said
    if command != "doctor":
        others = [line for line in said.splitlines() if line and line not in sentences and " could reach " not in line]
        assert [line for line in others if "cannot be changed" not in line] == []  # the log warns of open modes


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of an ordinary user, outside of pytest's own, which only root can reach."""
    with tempfile.TemporaryDirectory(prefix="holdfast-startup-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def folder_of_ordinary_user(path: Path, mode: int) -> Path:
    path.mkdir()
    if os.getuid() == 0:
        os.chown(path, denied.SOMEBODY, denied.SOMEBODY)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["read-only", "no rights"])
def test_a_data_folder_without_rights(place: Path, command: str, mode: int) -> None:
    folder = folder_of_ordinary_user(place / "data", mode)
    code, said = run(command, {"HOLDFAST_DATA_DIR": str(folder)}, as_ordinary_user=True)
    assert_told(command, code, said)
    assert str(folder) in said


@pytest.mark.parametrize("command", COMMANDS)
def test_a_data_folder_that_became_read_only(place: Path, command: str) -> None:
    folder = folder_of_ordinary_user(place / "data", 0o755)
    (folder / "holdfast.db").write_bytes(migrated(place))
    folder.chmod(0o555)
    code, said = run(command, {"HOLDFAST_DATA_DIR": str(folder)}, as_ordinary_user=True)
    assert_told(command, code, said)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("below", ["", "below"])
def test_a_file_where_the_data_folder_should_be(tmp_path: Path, command: str, below: str) -> None:
    (tmp_path / "file").touch()
    code, said = run(command, {"HOLDFAST_DATA_DIR": str(tmp_path / "file" / below)})
    assert_told(command, code, said)


def migrated(folder: Path) -> bytes:
    path = folder / "migrated.db"
    engine = make_engine(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()  # closing the last connection merges the WAL into the file
    return path.read_bytes()


def garbage(path: Path, folder: Path) -> None:
    path.write_bytes(bytes(range(256)) * 100)


def cut_off(path: Path, folder: Path) -> None:
    path.write_bytes(migrated(folder)[:30_000])


def overwritten(path: Path, folder: Path) -> None:
    whole = migrated(folder)
    path.write_bytes(whole[:8192] + bytes(range(256)) * 400 + whole[8192 + 256 * 400 :])


def a_folder(path: Path, folder: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", [garbage, cut_off, overwritten, a_folder])
def test_a_database_that_is_none(tmp_path: Path, command: str, damage: Callable[[Path, Path], None]) -> None:
    damage(tmp_path / "bad.db", tmp_path)
    environment = {"HOLDFAST_DATA_DIR": str(tmp_path), "HOLDFAST_DATABASE": f"sqlite:///{tmp_path}/bad.db"}
    code, said = run(command, environment)
    assert_told(command, code, said)


def test_a_backup_of_a_database_that_is_none(tmp_path: Path) -> None:
    garbage(tmp_path / "bad.db", tmp_path)
    environment = {"PATH": os.environ["PATH"], "HOLDFAST_DATABASE": f"sqlite:///{tmp_path}/bad.db"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, "backup", str(tmp_path / "copy.db")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "copy.db").exists()


@pytest.mark.parametrize("command", [*COMMANDS, "worker"])
def test_a_database_that_does_not_answer(tmp_path: Path, command: str) -> None:
    environment = {"HOLDFAST_DATA_DIR": str(tmp_path), "HOLDFAST_DATABASE": "postgresql://x:secret@127.0.0.1:1/x"}
    code, said = run(command, environment)
    assert code != 0
    assert "Traceback" not in said
    assert "secret" not in said
    assert "127.0.0.1" in said


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_a_new_version_does_not_start_beside_an_older_one_on_postgres(
    postgres_server: PostgresServer, tmp_path: Path, command: str
) -> None:
    url = postgres_server.create_database(f"beside_older_{command}")
    engine = make_engine(url)
    migrate(engine, "0012")
    engine.dispose()
    environment = {"HOLDFAST_DATABASE": url, "HOLDFAST_DATA_DIR": str(tmp_path), "HOLDFAST_ENCRYPTION_KEY": "k" * 32}
    with psycopg.connect(url):  # as a process of an older version is connected: without a name
        code, said = run(command, environment)
    assert code != 0
    assert "Traceback" not in said
    assert "Stop them all, then start this one." in said
