"""Repeated list options accumulate their values."""

import argparse

import pytest
from django.core.management import CommandError, call_command

from tests import factories
from tests.factories.files import build_upload
from tests.unit.docs.test_commands_are_documented import COMMANDS

TAKES_MANY = ("+", "*", argparse.REMAINDER)
ADDS_UP = (argparse._ExtendAction, argparse._AppendAction, argparse._AppendConstAction)


def iterate_options(parser):
    """Iterate over the options of a parser and of its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from iterate_options(verb)
        elif action.option_strings:
            yield parser.prog, action


def accepts_several_values(action):
    return action.nargs in TAKES_MANY or (isinstance(action.nargs, int) and action.nargs > 1)


ALL = [
    found for name, command in COMMANDS.items() for found in iterate_options(command.create_parser("manage.py", name))
]


def test_every_option_that_takes_several_values_accumulates():
    of_ours = [(prog, action) for prog, action in ALL if accepts_several_values(action)]
    assert {action.option_strings[0] for _, action in of_ours} >= {"--map", "--filter"}
    assert [(prog, action.option_strings) for prog, action in of_ours if not isinstance(action, ADDS_UP)] == []


def test_omitted_list_options_never_share_a_list():
    parser = COMMANDS["export"].create_parser("manage.py", "export")
    once = parser.parse_args(["x", "--out", "-", "--filter", "a=1", "--filter", "b=2", "c=3"])
    assert once.filter == ["a=1", "b=2", "c=3"]
    assert parser.parse_args(["x", "--out", "-"]).filter == []


def test_an_import_uses_every_mapping_option(db, tmp_path):
    from datasets_app.models import Dataset

    table = tmp_path / "items.csv"
    table.write_bytes(build_upload("a,b,id\nkey1,First?,x\n").read())
    call_command("dataset", "import", str(table), "--name", "set", "--map", "key=a", "--map", "input=b", verbosity=0)
    item = Dataset.objects.get().items.get()
    assert (item.key, item.input) == ("key1", "First?")


def test_an_export_keeps_every_filter_and_refuses_two_values_of_one(db, tmp_path):
    factories.make_experiment("study", owner=factories.make_user("owner"))
    out = str(tmp_path / "out.csv")
    with pytest.raises(CommandError, match="filter status: given twice, as 'done' and 'failed'"):
        call_command("export", "study", "--out", out, "--filter", "status=done", "--filter", "status=failed")
    with pytest.raises(CommandError, match="nonsense"):
        call_command("export", "study", "--out", out, "--filter", "nonsense=1", "--filter", "status=done")
