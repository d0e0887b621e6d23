"""docs/commands.md and docs/operating.md name every command, every verb and every option."""

import argparse
import re
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import find_commands, load_command_class
from django.core.management.base import BaseCommand

ROOT = Path(__file__).resolve().parents[3]
OURS = ("lib", "datasets_app", "runs_app", "grading_app")


def load_commands():
    for label in OURS:
        config = apps.get_app_config(label)
        for name in find_commands(str(Path(config.path) / "management")):
            yield name, load_command_class(config.name, name)


COMMANDS = dict(load_commands())


def list_options(parser):
    return {option for action in parser._actions for option in action.option_strings if option.startswith("--")}


DJANGOS = list_options(BaseCommand().create_parser("manage.py", "any"))


def read_documents():
    return "\n".join((ROOT / "docs" / name).read_text("utf-8") for name in ("commands.md", "operating.md"))


def read_section(name):
    text = read_documents()
    sections = dict(re.findall(r"^##+ (\S+)\n(.*?)(?=^##+ |\Z)", text, re.MULTILINE | re.DOTALL))
    return sections.get(name, "")


def find_missing(name, parser):
    """What a parser takes and the command's section does not say."""
    section = read_section(name)
    documented = set(re.findall(r"--[a-z][a-z-]*", section))
    missing = sorted(list_options(parser) - DJANGOS - documented)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            missing += [verb for verb in action.choices if not re.search(rf"^\| `{verb}[ `]", section, re.MULTILINE)]
            missing += [option for one in action.choices.values() for option in find_missing(name, one)]
    return missing


def test_commands_of_all_apps_are_found():
    assert {"dataset", "drain", "export", "reconcile", "up"} <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_with_its_verbs_and_options_is_documented(name):
    assert read_section(name), f"docs/commands.md has no section '## {name}'"
    assert find_missing(name, COMMANDS[name].create_parser("manage.py", name)) == []


def test_no_section_describes_a_removed_command():
    text = read_documents()
    described = set(re.findall(r"^##+ ([a-z_]+)$", text, re.MULTILINE))
    assert described - set(COMMANDS) == set()
