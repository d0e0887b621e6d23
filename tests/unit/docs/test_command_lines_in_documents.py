"""The commands, buttons and pages that the Markdown files name exist."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from django.core.management import CommandError, get_commands, load_command_class

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "samples").glob("*.md")])
PREFIX = r"evalsite|manage\.py|docs/deploy/manage"
COMMAND_LINE = re.compile(rf"(?:`|^    )(?:{PREFIX}) ([a-z_]+(?: [^`\n]*)?)", re.MULTILINE)
SHELL = re.compile(r"\s(?:>|\\?\||&&)\s.*")
TEXT_ON_A_PAGE = re.compile(r"(?<![*\w])\*([A-Z][^*]{1,60}?)\*(?!\*)")


def parse_command_line(line):
    """Parse a line as its command does. A line that only names a command or a verb has no arguments to parse."""
    name, *arguments = shlex.split(SHELL.sub("", line), comments=True)
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    if any(argument.startswith("--") for argument in arguments) or len(arguments) > 1:
        parser.parse_args(arguments)


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_line_uses_existing_commands_verbs_and_options(document):
    errors = []
    for line in COMMAND_LINE.findall(document.read_text(encoding="utf-8")):
        try:
            parse_command_line(line)
        except (CommandError, KeyError) as error:
            errors.append(f"{line}: {error}")
    assert errors == []


@pytest.mark.parametrize("document", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_the_documents_write_a_command_in_one_way(document):
    text = document.read_text(encoding="utf-8").replace('alias evalsite="$PWD/.venv/bin/python $PWD/manage.py"', "")
    assert re.findall(r".*(?:manage\.py|`m [a-z]).*", text) == []


@pytest.mark.parametrize("line", ["drane", "drain --until-idel", "dataset approv photographs@1 --reason x"])
def test_a_misspelt_command_line_is_refused(line):
    with pytest.raises((CommandError, KeyError)):
        parse_command_line(line)


@cache
def read_texts_of_the_site():
    apps = [ROOT / name for name in ("templates", "evalsite", "datasets_app", "runs_app", "grading_app")]
    files = [file for app in apps for file in app.rglob("*") if file.suffix in (".html", ".py")]
    return " ".join(" ".join(file.read_text(encoding="utf-8") for file in files).split()).lower()


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_page_button_and_field_in_italics_exists_on_the_site(document):
    prose = re.sub(r"^    .*$|^```.*?^```|`[^`]*`", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    named = {" ".join(text.split()) for text in TEXT_ON_A_PAGE.findall(prose)}
    assert [text for text in sorted(named) if text.lower() not in read_texts_of_the_site()] == []
