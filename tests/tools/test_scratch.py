"""Scratch folders on disk are removed whatever a tool put into them, also after their server was killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.tools.inside.resource_usage import MAX_NESTED_FOLDERS, folder_exceeds
from holdfast.tools.inside.scratch import LockedFolder, remove_tree, sweep

NAMES = [f"holdfast-tools-{digit * 32}" for digit in "0123"]


def nest(folder: Path, depth: int, name: str = "d" * 250) -> None:
    """Nest folders deeper than a path can express, one level at a time."""
    place = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=place)
        inner = os.open(name, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=place))
    os.close(place)


@pytest.mark.parametrize("depth", [1, 40, 3000])
def test_nested_folders_are_removed(tmp_path: Path, depth: int) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    nest(folder, depth)
    for number in range(3):
        (folder / f"{number:x}.removed").mkdir()  # the names under which nested folders are moved up
        (folder / f"{number:x}.removed/file").touch()
    remove_tree(str(folder))
    assert os.listdir(tmp_path) == []


def test_targets_of_links_are_not_removed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "scratch", tmp_path / "outside"
    (folder / "inner").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").touch()
    (folder / "link").symlink_to(outside)
    (folder / "inner/link").symlink_to(outside)
    remove_tree(str(folder))
    assert [path.name for path in tmp_path.rglob("*")] == ["outside", "file"]
    (tmp_path / "top").symlink_to(outside)
    remove_tree(str(tmp_path / "top"))
    assert (outside / "file").exists()


def test_folders_without_rights_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    (folder / "a/b/c").mkdir(parents=True)
    (folder / "a/b/file").touch()
    for place in ("a/b/c", "a/b", "a"):
        (folder / place).chmod(0)
    remove_tree(str(folder))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("depth", "max_bytes", "max_files", "over"),
    [(3, 10**9, 10, False), (3, 10**9, 3, True), (3, 0, 10, True), (MAX_NESTED_FOLDERS + 1, 10**9, 10**9, True)],
)
def test_a_folder_is_over_its_limits(tmp_path: Path, depth: int, max_bytes: int, max_files: int, over: bool) -> None:
    nest(tmp_path, depth, "d")
    (tmp_path / "large").write_bytes(b"x" * 10_000)
    assert folder_exceeds(str(tmp_path), max_bytes, max_files) is over


def test_folders_of_servers_that_no_longer_run_are_removed(tmp_path: Path) -> None:
    held, abandoned, old, young = (tmp_path / name for name in NAMES)
    claim = LockedFolder(str(held))
    (abandoned / "1f/work").mkdir(parents=True)
    (abandoned / "lock").touch()
    for lockless in (old, young):
        lockless.mkdir()
    os.utime(old, (1, 1))
    (tmp_path / "holdfast-tools-of-mine").mkdir()
    sweep(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {held.name, young.name, "holdfast-tools-of-mine"}
    claim.remove()
    assert not held.exists()


def test_a_sweep_where_nothing_can_be_listed_does_no_harm(tmp_path: Path) -> None:
    sweep(str(tmp_path / "missing"))
