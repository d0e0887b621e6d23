"""Child processes that need no key get none, and the database's address only if they use the database."""

import ast
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from django.conf import settings as site_settings
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from datasets_app.importing import limited_reader
from datasets_app.importing.records import FileError, ScratchFolder
from evalsite.lib.ops.environment import build_child_environment
from grading_app.publish.export.command_process import stream_command
from grading_app.publish.report import typst_process
from runs_app.pricing import token_counter, tokens
from runs_app.simulator.process import simulator_process

ROOT = Path(site_settings.BASE_DIR)
PACKAGES = ("datasets_app", "evalsite", "grading_app", "runs_app")
STARTERS = {f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")}
KEYS = {
    name: f"secret-in-{name}"
    for name in ("OPENAI_API_KEY", "EVALSITE_KEY_LAB", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "STRIPE_SECRET_KEY")
}
WITH_KEYS = {"evalsite/lib/ops/supervisor.py:_start"}
"""The site's own processes: the queue calls models."""


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    for name, value in {**KEYS, "DATABASE_URL": "postgresql://site:secret-in-DATABASE_URL@db/evalsite"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def report(tmp_path, monkeypatch):
    """Let children run a program that stores its environment instead of Python. Return a function that reads it."""
    file, program = tmp_path / "environment", tmp_path / "python"
    program.write_text(f"#!/bin/sh\n/usr/bin/env > {file}\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    return lambda: dict(line.split("=", 1) for line in file.read_text().splitlines())


def list_starts():
    """Return (place, whether it names an environment) for every start of a process in the site's packages."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            tree = ast.parse(text if "subprocess" in text else "")
            for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
                for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                    if ast.unparse(call.func) in STARTERS:
                        environment = next((part.value for part in call.keywords if part.arg == "env"), None)
                        yield f"{path.relative_to(ROOT)}:{function.name}", environment


def test_every_process_is_started_with_an_environment_of_its_own():
    starts = list(list_starts())
    assert len(starts) >= 12
    assert [place for place, environment in starts if environment is None] == []
    inheriting = {place for place, environment in starts if "os.environ" in ast.unparse(environment)}
    assert inheriting == WITH_KEYS


def test_only_named_variables_are_passed_on(monkeypatch):
    monkeypatch.setenv("PGSSLROOTCERT", "/etc/root.crt")
    monkeypatch.setenv("LANG", "C.UTF-8")
    assert "PGSSLROOTCERT" not in build_child_environment()
    passed = build_child_environment("PG*", "HF_TOKEN", EXTRA="1")
    assert passed["PGSSLROOTCERT"] == "/etc/root.crt"
    assert (passed["EXTRA"], passed["LANG"], passed["HF_TOKEN"]) == ("1", "C.UTF-8", "secret-in-HF_TOKEN")
    assert not passed.keys() & {"OPENAI_API_KEY", "DATABASE_URL", "EVALSITE_KEY_LAB"}


def start_typesetting(tmp_path):
    with pytest.raises(zipfile.BadZipFile):  # The program writes no archive.
        typst_process.convert_figures({"one.svg": "<svg/>"})


def start_reader(tmp_path):
    file = tmp_path / "items.csv"
    file.write_text("id\n1\n")
    with suppress(FileError):
        limited_reader.run_reader(ScratchFolder(), "none:task", {"items": limited_reader.FileToRead(file, file.name)})


def start_tokenizer(tmp_path):
    with pytest.raises(token_counter.CountError):
        token_counter.count_largest([["one"]], tokens.O200K)


def start_simulator(tmp_path):
    with pytest.raises(RuntimeError), simulator_process():
        pass


@pytest.mark.processes
@pytest.mark.usefixtures("new_readers")
@pytest.mark.parametrize("start", [start_typesetting, start_reader, start_tokenizer, start_simulator])
def test_a_child_without_a_database_gets_no_secret(report, tmp_path, start):
    start(tmp_path)
    assert "PATH" in report()
    assert "secret-in-" not in str(report())


@pytest.mark.processes
@pytest.mark.django_db
def test_a_command_behind_a_page_gets_the_database_and_no_key(report):
    b"".join(stream_command(["bundle", "dataset", "photographs@1", "--out=-"]))
    received = report()
    assert conninfo_to_dict(received["DATABASE_URL"])["dbname"] == connection.settings_dict["NAME"]
    assert received["EVALSITE_DATA_DIR"] == str(site_settings.DATA_DIR)
    assert "secret-in-" not in str(received)
