"""Base classes and helpers for commands with verbs: exit codes, confirmation, the acting user, updates of rows."""

from __future__ import annotations

import getpass
import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, ClassVar, NoReturn

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, OutputWrapper

from evalsite.lib.history import Actor, save_with_history
from evalsite.lib.ops.failed_commands import explain_failure
from evalsite.lib.text.characters import escape_for_terminal

DONE, WORK_FAILED, BAD_INPUT, UNCONFIRMED, OVER_BUDGET = range(5)


def refuse_input(message: str) -> NoReturn:
    raise CommandError(message, returncode=BAD_INPUT)


def refuse_file(error: Exception) -> NoReturn:
    """End the command after a file could not be read or written.

    The exit code is 2, because the path is wrong; or 1 for a full disk. If the reader of the standard output has left,
    the error is raised again: manage.py then ends without a message.
    """
    if isinstance(error, BrokenPipeError):
        raise error
    raise explain_failure(error) or CommandError(str(error), returncode=BAD_INPUT)


class TerminalOutput(OutputWrapper):
    """An output stream that escapes control characters, so that untrusted text cannot control the terminal.

    Names, answers and errors may contain such characters. They are written as in JSON, `\\u001b`. The command's own
    colours are added afterwards.
    """

    def write(self, msg: str = "", style_func: Any = None, ending: str | None = None) -> None:  # type: ignore[override]
        lines = (escape_for_terminal(line) for line in msg.split("\n"))
        super().write("\n".join(lines), style_func, ending)


class OutputCommand(BaseCommand):
    """A command that writes lines for people, or JSON for programs."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        for name in ("stdout", "stderr"):
            current, output_option = getattr(self, name), options.pop(name, None)
            output = TerminalOutput(output_option or current._out)
            output.style_func = None if output_option else current.style_func
            setattr(self, name, output)
        return super().execute(*args, **options)

    def write(self, text: str = "") -> None:
        self.stdout.write(text)

    def report_written(self, what: str, out: str, verbosity: int) -> None:
        """Say what was written to the path. If the content went to the standard output, say so on the error output."""
        if not verbosity:
            return
        if out == "-":
            self.stderr.write(f"Wrote {what}")
        else:
            self.write(f"Wrote {what} to {out}")

    def write_file(self, text: str) -> None:
        """Write the text of a file. Escape control characters only if the output is a terminal."""
        if self.stdout.isatty():
            self.write(text)
        else:
            OutputWrapper.write(self.stdout, text)

    def write_json(self, content: Any) -> None:
        self.write(json.dumps(content, indent=2, ensure_ascii=False, default=str))

    def write_json_with_rows(self, content: Mapping[str, Any], name: str, rows: Iterable[Any]) -> None:
        """Write one JSON object: the content, then the rows as the list `name`, a line for each.

        Rows are written one by one, so memory use does not depend on their number.
        """
        head = json.dumps(content, indent=2, ensure_ascii=False, default=str).removesuffix("\n}")
        self.write(f'{head},\n  "{name}": [')
        separator = ""
        for row in rows:
            self.stdout.write(separator, ending="")
            self.stdout.write("    " + json.dumps(row, ensure_ascii=False, default=str), ending="")
            separator = ",\n"
        self.write("\n  ]\n}")

    def confirm(self, question: str, yes: bool) -> None:
        """Return if `yes` is set or a person at the terminal agrees. Otherwise end the command with exit code 3."""
        if yes or (sys.stdin.isatty() and input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}):
            return
        raise CommandError(f"{question} Confirm with --yes; nothing was changed", returncode=UNCONFIRMED)


class VerbCommand(OutputCommand):
    """A command of the form `manage.py NOUN VERB ...`.

    The method `do_VERB` runs a verb (with _ for -) and receives its parsed arguments by name. An exception listed in
    `refusals` ends the command with exit code 2 and the exception's message.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.add_verbs(parser.add_subparsers(dest="verb", required=True, metavar="VERB"))

    def add_verbs(self, verbs: Any) -> None:
        """Add a parser for each verb."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"do_{options['verb'].replace('-', '_')}")(**options)
        except self.refusals as error:
            refuse_input(str(error))


def choose_format(options: Mapping[str, Any], formats: Iterable[str], default: str = "") -> str:
    """Return the format that `--format` names, or else the suffix of the path of `--out`.

    The default is for a path without a suffix, such as the standard output, and for `.txt`. Without one, or with the
    suffix of another format, the command ends with exit code 2.
    """
    suffix = PurePath(options["out"]).suffix.removeprefix(".").lower()
    named = {"txt": "", "tex": "latex", "ndjson": "jsonl"}.get(suffix, suffix)
    file_format = str(options["format"] or named or default)
    if file_format not in formats and not options["format"]:
        endings = ", ".join(f".{one}" for one in formats)
        refuse_input(f"--out: the name must end in one of {endings}; or name the format with --format")
    return file_format


def add_switches(parser: ArgumentParser, switches: Iterable[tuple[str, str, bool, str]]) -> None:
    """Add options without a value. Each is a tuple of flag, field, stored value and help text; the default is None."""
    for flag, field, value, help_text in switches:
        parser.add_argument(flag, dest=field, action="store_const", const=value, default=None, help=help_text)


def add_list_option(parser: Any, flag: str, **options: Any) -> None:
    """Add an option that takes one or more values and may be repeated. The default is an empty list."""
    parser.add_argument(flag, action="extend", nargs="+", default=[], **options)


def add_reason(parser: ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument("--reason", required=required, default="", metavar="TEXT", help="reason for the history")
    add_user(parser)


def add_user(
    parser: ArgumentParser, help_text: str = "author for the history; default: the account of this shell"
) -> None:
    parser.add_argument("--user", default="", metavar="NAME", help=help_text)


def resolve_actor(username: str = "") -> User | str:
    """Return the actor for the history: the named user, or a text with the account that runs this shell."""
    if username:
        return find_user(username)
    try:
        return f"command line ({getpass.getuser()})"
    except (KeyError, OSError):
        return "command line"


def resolve_approver(username: str, permission: str, kind: str) -> User | str:
    """Return the actor of an approval: the account of this shell, or the named user.

    End the command with exit code 2 if the named user may not approve rows of this kind, so that no history says that
    they did.
    """
    actor = resolve_actor(username)
    if isinstance(actor, User) and not actor.has_perm(permission):
        refuse_input(f"user: {actor} may not approve a {kind}; name a curator, or omit --user to approve as the shell")
    return actor


def resolve_owner(username: str = "") -> User:
    """Return the named user, or the only active superuser if no name is given.

    End the command with exit code 2 if the user does not exist.
    """
    if username:
        return find_user(username)
    require_user()
    superusers = list(User.objects.filter(is_superuser=True, is_active=True)[:2])
    if len(superusers) != 1:
        refuse_input("user: name the owner with --user NAME, because the site does not have exactly one superuser")
    return superusers[0]


def find_user(username: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        require_user()
        refuse_input(f"user: there is no user {username}")
    return user


def require_user() -> None:
    """End the command with exit code 2 and the remedy if the site has no user."""
    if not User.objects.exists():
        refuse_input(
            "user: this site has no user yet; create the first with `manage.py createsuperuser`, then try again"
        )


def update_fields(row: Any, values: dict[str, Any], *, by: Actor, reason: str = "") -> None:
    """Set the fields whose value is not None, and save the row with its history.

    Exit with code 2 and the name of the field if a value is invalid.
    """
    for field, value in values.items():
        if value is not None:
            setattr(row, field, value)
    try:
        row.full_clean()
    except ValidationError as error:
        problems = [f"{field}: {message}" for field, messages in error.message_dict.items() for message in messages]
        refuse_input("; ".join(problems))
    save_with_history(row, by=by, reason=reason)
