"""Sealed texts: unreadable at rest, opened with the right key only, and old plain texts still read."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.ports.sealing import NoKey, WrongKey
from holdfast.storage.sealing import KEY_FILE, AesSealer


def own(folder: Path) -> AesSealer:
    return AesSealer(None, folder, makes_key=True)


def given(key: str, folder: Path) -> AesSealer:
    return AesSealer(key, folder, makes_key=False)


@pytest.mark.parametrize("text", ["sk-123", "", "umlaut ü, 漢字, \N{ROCKET}", "\ud800 alone", "x" * 100_000])
def test_what_is_sealed_can_be_opened_and_not_read(tmp_path: Path, text: str) -> None:
    sealed = given("a key", tmp_path).seal(text)
    assert not text or text not in sealed
    assert given("a key", tmp_path).open(sealed) == text


def test_the_same_text_is_sealed_differently_each_time(tmp_path: Path) -> None:
    sealer = given("a key", tmp_path)
    assert sealer.seal("same") != sealer.seal("same")


def test_a_text_from_before_there_was_a_seal_is_read_as_it_is(tmp_path: Path) -> None:
    assert given("a key", tmp_path).open("plain.value") == "plain.value"


def test_another_key_opens_nothing_and_says_what_to_do(tmp_path: Path) -> None:
    sealed = given("a key", tmp_path).seal("hidden")
    with pytest.raises(WrongKey, match="HOLDFAST_ENCRYPTION_KEY"):
        given("another", tmp_path).open(sealed)


def test_a_sealed_text_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    sealer = given("a key", tmp_path)
    sealed = sealer.seal("hidden")
    with pytest.raises(WrongKey, match="changed"):
        sealer.open(sealed[:-6] + ("AAAA" if sealed[-6:-2] != "AAAA" else "BBBB") + sealed[-2:])


def test_a_server_without_a_key_refuses_to_store_secrets_and_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(NoKey, match="HOLDFAST_ENCRYPTION_KEY"):
        AesSealer(None, tmp_path, makes_key=False).seal("hidden")
    assert list(tmp_path.iterdir()) == []


def test_an_own_key_is_made_once_for_its_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    sealed = own(folder).seal("hidden")
    assert own(folder).open(sealed) == "hidden"
    assert [file.name for file in folder.iterdir()] == [KEY_FILE]
    assert (folder / KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_before_the_first_secret(tmp_path: Path) -> None:
    assert own(tmp_path).open("plain") == "plain"
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_set_later_seals_anew_and_still_opens_what_the_own_key_sealed(tmp_path: Path) -> None:
    old = own(tmp_path).seal("hidden")
    later = AesSealer("now there is one", tmp_path, makes_key=True)
    assert later.open(old) == "hidden"
    with pytest.raises(WrongKey):
        own(tmp_path).open(later.seal("hidden"))
