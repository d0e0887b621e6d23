"""Control characters in names, answers and errors are escaped, so that they cannot affect the terminal."""

import io
import json

import pytest
from django.core.management import CommandError, call_command

from evalsite.lib.ops.commands import OutputCommand
from evalsite.lib.text.characters import escape_for_terminal
from tests import factories

pytestmark = pytest.mark.django_db
EVIL = "\x1b[2J\x1b]0;title\x07 a\rb \u202egnp\u202c \x9b31m"


class WriteArgument(OutputCommand):
    """A command that writes its argument."""

    requires_system_checks = []

    def handle(self, *args, **options):
        self.write(EVIL)
        self.stdout.write(EVIL, lambda text: f"\x1b[36m{text}\x1b[0m")
        self.stderr.write(EVIL)
        self.write_json({"name": EVIL})
        self.write_file(EVIL)


def capture_output(command):
    out, err = io.StringIO(), io.StringIO()
    call_command(command, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_controls_are_written_as_their_codes():
    output, warned = capture_output(WriteArgument())
    first, styled, *_ = output.split("\n")
    assert first == r"\u001b[2J\u001b]0;title\u0007 a\u000db \u202egnp\u202c \u009b31m"
    assert warned == first + "\n"
    assert styled == f"\x1b[36m{first}"


def test_json_keeps_its_meaning():
    output, _ = capture_output(WriteArgument())
    document = output[output.index("{") : output.rindex("}") + 1]
    assert json.loads(document) == {"name": EVIL}
    assert "\u202e" not in document


def test_a_file_that_goes_to_a_pipe_is_exact():
    output, _ = capture_output(WriteArgument())
    assert output.endswith(f"{EVIL}\n")


def test_tabs_and_line_breaks_are_kept():
    assert escape_for_terminal("a\tb") == "a\tb"
    assert capture_output(WriteArgument())[0].count("\n") > 4


def test_a_list_of_experiments_shows_a_hostile_title_as_text(capsys):
    factories.make_experiment("pilot", title=EVIL, description=EVIL)
    out = io.StringIO()
    call_command("status", "pilot", stdout=out)
    assert "\x1b" not in out.getvalue()
    with pytest.raises(SystemExit):
        run("export", EVIL, "--out", "-")
    assert "\x1b" not in capsys.readouterr().err


def run(*argv):
    from django.core.management import ManagementUtility

    ManagementUtility(["manage.py", *argv]).execute()


def test_an_error_names_a_hostile_argument_as_text(capsys):
    with pytest.raises(CommandError):
        call_command("status", EVIL)
    with pytest.raises(SystemExit):
        run("experiment", "show", EVIL)
    assert "\x1b" not in capsys.readouterr().err
