"""The command line of Evalsite, for `manage.py`, the program `evalsite` and `python -m evalsite`."""

import atexit
import gc
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

from evalsite.lib.ops.call_stack import call_with_room
from evalsite.lib.ops.installation import COMMAND, get_data_dir

WITHOUT_DATABASE = frozenset(
    {
        "check",
        "collectstatic",
        "compilemessages",
        "diffsettings",
        "help",
        "makemessages",
        "simulate_provider",
        "startapp",
        "version",
    }
)
ONLY_LOOKING = frozenset({"--help", "-h", "--version"})
LIST_OF_COMMANDS: tuple[list[str], ...] = ([], ["help"], ["--help"], ["-h"])
# New objects between two garbage collections. With Python's 700, a start spends a tenth of its time on collections.
COLLECT_AFTER = 50_000


def needs_database(arguments: list[str]) -> bool:
    """Return whether the command will use the database. `arguments` excludes the program's name."""
    if not arguments or arguments[0] in WITHOUT_DATABASE or ONLY_LOOKING & set(arguments):
        return False
    return arguments[0] != "makemigrations" or "--dry-run" not in arguments


BAD_INPUT = 2


def database() -> AbstractContextManager[None]:
    """Keep the embedded server running during the command. Do nothing if DATABASE_URL names another server."""
    if os.environ.get("DATABASE_URL") or not needs_database(sys.argv[1:]):
        return nullcontext()
    from evalsite.lib.ops.postgres import Embedded

    leave_on_signals()
    return Embedded(get_data_dir() / "postgres").running()


def leave_on_signals() -> None:
    """Exit through SystemExit on SIGTERM and SIGHUP.

    By default these signals skip every `finally` block, and the server would keep running without users.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # for example, nohup ignores SIGHUP on purpose
            signal.signal(number, lambda received, _frame: sys.exit(128 + received))


@contextmanager
def quiet_without_reader() -> Iterator[None]:
    """Exit quietly, with the usual exit code, if the reader of the output has closed it: `status | head -1`.

    A command that has already finished its work keeps the result. A command that still works is interrupted, as by
    Ctrl-C.
    """
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    try:
        try:
            yield
        finally:
            for stream in streams:
                stream.flush()
    except BrokenPipeError:
        unread = [stream for stream in streams if has_no_reader(stream.fileno())]
        if not unread:
            raise  # The broken pipe is not our output.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in unread:
            os.dup2(nowhere, stream.fileno())  # At exit, Python flushes its buffers.
        sys.exit(128 + signal.SIGPIPE)


def has_no_reader(descriptor: int) -> bool:
    """Return whether this is a pipe whose reading end is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def execute() -> None:
    """Run the command that `sys.argv` names."""
    if sys.argv[1:] in (["version"], ["--version"]):
        from evalsite.lib.ops.versions import get_version

        print(get_version())  # Django would print its own version.
        return
    program = Path(sys.argv[0]).name
    program = COMMAND if program == "__main__.py" else program
    if sys.argv[1:] in LIST_OF_COMMANDS:
        print_commands(program)
        return
    from django.core.management import BaseCommand, execute_from_command_line

    # `check` checks all. Other commands check the settings: the models and addresses of a release are the same
    # everywhere, and importing all pages takes most of the start of a command.
    BaseCommand.requires_system_checks = ["settings"]
    execute_from_command_line([program, *sys.argv[1:]])


def print_commands(program: str) -> None:
    """Print the names of all commands by app. Django would import the models first."""
    from django.conf import settings
    from django.core.management import find_commands

    print(f"{program} help COMMAND explains a command.")
    packages = [app for app in settings.INSTALLED_APPS if app.islower()]  # Without names of app configurations.
    for package in ("django.core", *packages):
        spec = find_spec(package)
        folders = (spec and spec.submodule_search_locations) or []
        if names := sorted(name for folder in folders for name in find_commands(str(Path(folder) / "management"))):
            print(f"\n[{package}]")
            print("\n".join(f"    {name}" for name in names))


def main() -> None:
    gc.set_threshold(COLLECT_AFTER, 20, 20)
    atexit.register(gc.freeze)  # At its end, Python would search all modules several times for unused cycles.
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    from evalsite.lib.ops.data_folder import UMASK
    from evalsite.lib.ops.environment import SettingError, refuse_unknown
    from evalsite.lib.ops.failed_commands import explain_failures
    from evalsite.lib.ops.postgres_programs import PostgresError

    os.umask(UMASK)
    try:
        with explain_failures(), quiet_without_reader():
            refuse_unknown()
            os.environ["EVALSITE_DATA_DIR"] = str(get_data_dir())  # Child processes have another working directory.
            with database(), explain_failures():
                call_with_room(execute)
    except PostgresError as error:
        sys.exit(str(error))
    except SettingError as error:
        print(error, file=sys.stderr)
        sys.exit(BAD_INPUT)
