"""Encryption of secrets: unreadable at rest, decrypted with the right key only; old plain texts are still read."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.ports.encryption import NoKey, WrongKey
from holdfast.storage.encryption import KEY_FILE, AesEncrypter


def with_key_file(folder: Path) -> AesEncrypter:
    return AesEncrypter(None, folder, makes_key=True)


def with_key(key: str, folder: Path) -> AesEncrypter:
    return AesEncrypter(key, folder, makes_key=False)


@pytest.mark.parametrize("text", ["sk-123", "", "umlaut ü, 漢字, \N{ROCKET}", "\ud800 alone", "x" * 100_000])
def test_an_encrypted_text_can_be_decrypted_and_not_read(tmp_path: Path, text: str) -> None:
    sealed = with_key("a key", tmp_path).encrypt(text)
    assert not text or text not in sealed
    assert with_key("a key", tmp_path).decrypt(sealed) == text


def test_the_same_text_is_encrypted_differently_each_time(tmp_path: Path) -> None:
    encrypter = with_key("a key", tmp_path)
    assert encrypter.encrypt("same") != encrypter.encrypt("same")


def test_an_unchanged_text_keeps_its_ciphertext_until_the_key_changes(tmp_path: Path) -> None:
    encrypter = with_key("a key", tmp_path)
    sealed = encrypter.encrypt("same")
    assert encrypter.encrypt_again("same", sealed) == sealed
    for before, text in ((sealed, "another"), ("same", "same"), ("", "same"), (sealed[:-4] + "AAA=", "same")):
        again = encrypter.encrypt_again(text, before)
        assert again not in (before, text)
        assert encrypter.decrypt(again) == text
    newer = with_key("another key", tmp_path)
    assert newer.decrypt(newer.encrypt_again("same", sealed)) == "same"


def test_a_text_stored_before_encryption_existed_is_read_as_it_is(tmp_path: Path) -> None:
    assert with_key("a key", tmp_path).decrypt("plain.value") == "plain.value"


def test_another_key_decrypts_nothing_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    sealed = with_key("a key", tmp_path).encrypt("hidden")
    with pytest.raises(WrongKey, match="HOLDFAST_ENCRYPTION_KEY"):
        with_key("another", tmp_path).decrypt(sealed)


def test_an_encrypted_text_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    encrypter = with_key("a key", tmp_path)
    sealed = encrypter.encrypt("hidden")
    with pytest.raises(WrongKey, match="changed"):
        encrypter.decrypt(sealed[:-6] + ("AAAA" if sealed[-6:-2] != "AAAA" else "BBBB") + sealed[-2:])


def test_a_server_without_a_key_refuses_to_store_secrets_and_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(NoKey, match="HOLDFAST_ENCRYPTION_KEY"):
        AesEncrypter(None, tmp_path, makes_key=False).encrypt("hidden")
    assert list(tmp_path.iterdir()) == []


def test_a_key_file_is_generated_once_and_readable_only_by_its_user(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    sealed = with_key_file(folder).encrypt("hidden")
    assert with_key_file(folder).decrypt(sealed) == "hidden"
    assert [file.name for file in folder.iterdir()] == [KEY_FILE]
    assert (folder / KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_before_the_first_secret(tmp_path: Path) -> None:
    assert with_key_file(tmp_path).decrypt("plain") == "plain"
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_set_later_encrypts_and_texts_of_the_key_file_are_still_read(tmp_path: Path) -> None:
    old = with_key_file(tmp_path).encrypt("hidden")
    later = AesEncrypter("now there is one", tmp_path, makes_key=True)
    assert later.decrypt(old) == "hidden"
    with pytest.raises(WrongKey):
        with_key_file(tmp_path).decrypt(later.encrypt("hidden"))
