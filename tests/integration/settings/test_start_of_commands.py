"""The list of commands needs no models, and a command checks the settings, not the addresses of all pages."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.core.checks.registry import registry
from django.core.management import BaseCommand, get_commands

from evalsite import command_line

ROOT = Path(__file__).parents[3]


def test_the_list_names_every_command(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["manage.py", "help"])
    command_line.execute()
    lines = capsys.readouterr().out.splitlines()
    assert {line.strip() for line in lines if line.startswith("    ")} == set(get_commands())
    assert "[runs_app]" in lines


def test_the_list_of_commands_loads_no_models():
    code = (
        "import sys; sys.argv = ['manage.py']; from evalsite.command_line import main; main();"
        "print([name for name in ('django.db.models', 'psycopg', 'runs_app.models') if name in sys.modules])"
    )
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.splitlines()[-1] == "[]"


def test_the_models_load_neither_pydantic_nor_an_http_client():
    code = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'evalsite.settings'; django.setup();"
        "import runs_app.notifications;"
        "print([name for name in ('pydantic', 'aiohttp', 'numpy') if name in sys.modules])"
    )
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.splitlines()[-1] == "[]"


@pytest.mark.django_db
def test_a_command_checks_the_settings_only(monkeypatch):
    checked = []
    monkeypatch.setattr(BaseCommand, "requires_system_checks", "__all__")
    monkeypatch.setattr(BaseCommand, "check", lambda self, tags=None, **options: checked.append(tags))
    monkeypatch.setattr(sys, "argv", ["manage.py", "status"])
    command_line.execute()
    assert checked == [["settings"]]


def test_every_check_of_the_settings_runs_before_a_command():
    ours = [check for check in registry.get_checks() if check.__module__ == "evalsite.lib.ops.checks"]
    assert len(ours) == 4
    assert all(check.tags == ("settings",) for check in ours)


def test_a_command_ends_without_searching_its_modules_for_cycles():
    """The callback counts the collections while the interpreter ends. They find the frozen objects of no module."""
    code = (
        "import atexit, gc, os, sys; sys.argv = ['manage.py', 'version'];"
        "from evalsite.command_line import main; main();"
        "atexit.register(lambda: print('before', gc.get_freeze_count()));"
        "gc.callbacks.append(lambda phase, info: os.write(1, b'after %d\\n' % gc.get_freeze_count()));"
    )
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = completed.stdout.splitlines()
    assert "before 0" in lines
    assert all(int(line.split()[1]) > 1_000 for line in lines if line.startswith("after"))
    assert any(line.startswith("after") for line in lines)
