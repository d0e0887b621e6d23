"""Readers of uploads as forks of a process that has imported their modules.

A new interpreter takes .3 s for each upload and import, most of it for the modules. The process has the environment of
a reader. Each fork sets its own limits, and ends with the exit codes of a reader.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from functools import cache

import pytest

from datasets_app.importing import limited_reader, reader_process
from evalsite.lib.ops.environment import build_child_environment
from evalsite.lib.ops.installation import ROOT

START = limited_reader._start_process
BYTES = 8  # Of a number that the process sends.


@pytest.fixture(autouse=True, scope="session")
def forked_readers():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limited_reader, "_start_process", ForkedReader)
        yield


@pytest.fixture
def new_readers(monkeypatch):
    """Start a new interpreter for each reader, as the site does."""
    monkeypatch.setattr(limited_reader, "_start_process", START)


@cache
def start_parent():
    """Start the process that forks, and return a socket to it. The process ends with the last copy of the socket."""
    ours, theirs = socket.socketpair()
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.forked_readers", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            env=build_child_environment(**limited_reader.ENVIRONMENT),
            pass_fds=[theirs.fileno()],
        )
    return ours


class ForkedReader:
    """The part of `subprocess.Popen` that a caller of a reader uses."""

    def __init__(self, stderr):
        self.returncode = None
        read_end, write_end = os.pipe()
        self.stdin, (self._channel, theirs) = os.fdopen(write_end, "wb"), socket.socketpair()
        with theirs:
            socket.send_fds(start_parent(), [b"."], [read_end, stderr.fileno(), theirs.fileno()])
        os.close(read_end)
        self.pid = int.from_bytes(self._channel.recv(BYTES))

    def wait(self, timeout=None):
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                self.returncode = int.from_bytes(self._channel.recv(BYTES), signed=True)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("reader", timeout) from None
            self._channel.close()
        return self.returncode

    def kill(self):
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def serve(requests):
    """Fork a reader for each request: its standard input, its errors, and a channel for its number and exit code."""
    import grading_app.study_import.importers
    import grading_app.study_import.upload_reader  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The forks that wait for readers are not waited for.
    while True:
        request, (*files,), _, _ = socket.recv_fds(requests, 1, 3)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            report_exit(*files)
        for file in files:
            os.close(file)


def report_exit(stdin, stderr, channel):
    """Fork the reader, and send its number and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.dup2(stdin, 0)
        os.dup2(stderr, 2)
        os.closerange(3, max(stdin, stderr, channel) + 1)
        reader_process.main()
    os.close(stdin)
    os.write(channel, pid.to_bytes(BYTES))
    _, status = os.waitpid(pid, 0)
    os.write(channel, os.waitstatus_to_exitcode(status).to_bytes(BYTES, signed=True))
    os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
