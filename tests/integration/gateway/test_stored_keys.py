"""A key that an operator stored on the site is sent like a key of the environment, and appears nowhere else."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runs_app.llm.keys import FILE_NAME, KeyRefused, list_secrets, load_stored_keys, read_key, redact_body, store_key

NAME, KEY = "EVALSITE_KEY_LAB", "sk-lab-0123456789"


@pytest.fixture(autouse=True)
def folder(settings, tmp_path, monkeypatch):
    settings.DATA_DIR = tmp_path
    monkeypatch.delenv(NAME, raising=False)
    return tmp_path


def test_only_the_sites_account_can_read_the_file(folder):
    old = os.umask(0)
    try:
        store_key(NAME, KEY)
    finally:
        os.umask(old)
    assert stat.S_IMODE((folder / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir() if KEY in path.read_text()] == [FILE_NAME]


def test_a_stored_key_is_read_again_after_a_change():
    assert read_key(NAME) == ""
    store_key(NAME, f" {KEY}\n")
    assert read_key(NAME) == KEY
    store_key(NAME, "sk-other-987654321")
    assert read_key(NAME) == "sk-other-987654321"
    store_key(NAME, "")
    assert read_key(NAME) == ""
    assert load_stored_keys() == {}


def test_the_environment_comes_first(monkeypatch):
    store_key(NAME, KEY)
    monkeypatch.setenv(NAME, "sk-of-the-environment")
    assert read_key(NAME) == "sk-of-the-environment"


def test_a_name_that_may_hold_no_key_is_not_read_from_the_file(folder):
    (folder / FILE_NAME).write_text(json.dumps({"DATABASE_KEY": KEY}))
    assert read_key("DATABASE_KEY") == ""


def test_stored_keys_are_removed_from_replies():
    store_key(NAME, KEY)
    assert KEY in list_secrets()
    assert redact_body(f'{{"error": "wrong key {KEY}"}}'.encode(), list_secrets()) == b'{"error": "wrong key [key]"}'


@pytest.mark.parametrize("text", ["two words", "line\nbreak", "schlüssel", "x" * 5001, "nul\x00"])
def test_a_text_that_no_header_can_carry_is_refused(text):
    with pytest.raises(KeyRefused):
        store_key(NAME, text)
    assert load_stored_keys() == {}


def test_keys_that_are_stored_at_once_are_all_kept(folder: Path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store_key(f"EVALSITE_KEY_N{number}", f"{KEY}{number}"), range(24)))
    assert len(load_stored_keys()) == 24
    assert not list(folder.glob(".*"))
