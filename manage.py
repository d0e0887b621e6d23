#!/usr/bin/env python
"""Evalsite's command line. `python manage.py help` lists the commands."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

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


def needs_database(arguments: list[str]) -> bool:
    """Whether a command line, without the program's name, will talk to the database."""
    if not arguments or arguments[0] in WITHOUT_DATABASE or ONLY_LOOKING & set(arguments):
        return False
    return arguments[0] != "makemigrations" or "--dry-run" not in arguments


BAD_INPUT = 2


def database() -> AbstractContextManager[None]:
    """Hold the embedded server while the command runs; a server named by DATABASE_URL looks after itself."""
    if os.environ.get("DATABASE_URL") or not needs_database(sys.argv[1:]):
        return nullcontext()
    from evalsite.lib.ops.postgres import Embedded

    leave_on_signals()
    data_dir = Path(os.environ.get("EVALSITE_DATA_DIR") or Path(__file__).resolve().parent / "var")
    return Embedded(data_dir / "postgres").held()


def leave_on_signals() -> None:
    """Unwind when terminated: by default that skips every `finally`, and the server would outlive its last user."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup, for one, ignores SIGHUP on purpose
            signal.signal(number, lambda received, _frame: sys.exit(128 + received))


@contextmanager
def quiet_without_reader() -> Iterator[None]:
    """End quietly, with the exit code of other programs, if the reader of the output has left: `status | head -1`.

    A command that has done its work by then has done it; one that is at work is interrupted, as by Ctrl-C.
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
            raise  # It is the pipe of something else.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in unread:
            os.dup2(nowhere, stream.fileno())  # Python writes what is left in its buffers when it ends.
        sys.exit(128 + signal.SIGPIPE)


def has_no_reader(descriptor: int) -> bool:
    """Return whether this is a pipe whose other end is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    from django.core.management import execute_from_command_line

    from evalsite.lib.ops.environment import SettingError, refuse_unknown
    from evalsite.lib.ops.postgres import PostgresError
    from evalsite.lib.ops.private_files import UMASK

    os.umask(UMASK)
    try:
        with quiet_without_reader():
            refuse_unknown()
            with database():
                execute_from_command_line(sys.argv)
    except PostgresError as error:
        sys.exit(str(error))
    except SettingError as error:
        print(error, file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
