"""Unknown settings and unsafe combinations are refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalsite.lib.ops import checks, environment
from evalsite.lib.ops.environment import SettingError


def test_a_misspelt_setting_is_refused_with_the_valid_names():
    with pytest.raises(SettingError, match=r"EVALSITE_DEBGU.*EVALSITE_DEBUG"):
        environment.refuse_unknown({"EVALSITE_DEBGU": "1", "PATH": "/bin"})


def test_a_key_of_an_endpoint_is_no_unknown_setting():
    environment.refuse_unknown({"EVALSITE_KEY_LAB": "sk-of-the-lab"})
    with pytest.raises(SettingError, match="EVALSITE_KEYS"):
        environment.refuse_unknown({"EVALSITE_KEYS": "sk-of-the-lab"})


@pytest.mark.parametrize(("text", "value"), [("1", True), ("yes", True), ("", False), ("Off", False)])
def test_a_flag_is_read(text, value):
    assert environment.read_flag("EVALSITE_DEBUG", {"EVALSITE_DEBUG": text}) is value


@pytest.mark.parametrize("text", ["maybe", "2", "truee"])
def test_an_invalid_flag_is_refused(text):
    with pytest.raises(SettingError, match="EVALSITE_DEBUG"):
        environment.read_flag("EVALSITE_DEBUG", {"EVALSITE_DEBUG": text})


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", ""])
def test_an_invalid_number_of_drains_is_refused(text):
    with pytest.raises(SettingError, match="EVALSITE_DRAINS"):
        environment.read_whole_number("EVALSITE_DRAINS", default=2, environ={"EVALSITE_DRAINS": text})


def test_a_shared_database_without_a_shared_secret_is_a_warning(settings):
    settings.DEBUG = False
    alone = {"DATABASE_URL": "postgresql://db/evalsite"}
    assert [one.id for one in checks._check_secret(alone)] == ["evalsite.W001"]
    assert checks._check_secret(alone | {"EVALSITE_SECRET_KEY": "x" * 40}) == []
    assert checks._check_secret({}) == []


def test_debugging_in_public_is_an_error(settings):
    settings.DEBUG = True
    settings.ALLOWED_HOSTS = ["localhost", "lab.example.org"]
    (error,) = checks.check_local_debugging(None)
    assert "lab.example.org" in error.msg
    settings.DEBUG = False
    assert checks.check_local_debugging(None) == []


@pytest.mark.parametrize(
    "change", [{"queue_limit": 50}, {"bulk": 10}, {"retry": 60}, {"max_attempts": 0}, {"scheduler": True}]
)
def test_a_queue_that_would_run_tasks_twice_or_unsigned_is_an_error(settings, change):
    assert checks.check_queue_attempts(None) == []
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, **change}
    assert [one.id for one in checks.check_queue_attempts(None)] == ["evalsite.E002"]


def test_a_command_reports_a_misspelt_setting_in_one_line_and_exits_with_2():
    completed = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, "EVALSITE_DEBGU": "1"},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 2
    assert "EVALSITE_DEBGU" in completed.stderr
    assert len(completed.stderr.splitlines()) == 1
