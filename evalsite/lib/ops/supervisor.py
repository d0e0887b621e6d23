"""A supervisor of child processes: it starts them, replaces those that end or hang, and stops them together.

Each child leads its own process group. Ctrl-C in a terminal therefore reaches only the supervisor. The supervisor can
also kill a child together with all processes that it forked. This module does not depend on what the children do.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from evalsite.lib.ops.environment import build_child_environment

logger = logging.getLogger("evalsite.up")

CHECK_S = 0.1  # Interval between two checks of the children.
HEALTHY_AFTER_S = 10.0  # A child that has run this long counts as healthy.
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0
SHUTDOWN_S = 3.0  # Longest wait until all processes of a killed group are gone.
MAX_STARTS = 4  # Of a child that was never healthy, before the supervisor stops.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# A shell script that reads one line with all live process groups each time they change. When its input ends, it kills
# the groups of the last line and then runs its arguments as a command. After an orderly stop the last line is empty,
# and the script does nothing.
WATCHDOG_SCRIPT = """
groups=none
while read -r line; do groups=$line; done
[ -n "$groups" ] || exit 0
for group in $groups; do kill -s KILL -- "-$group"; done 2>/dev/null
[ $# -eq 0 ] || exec "$@"
"""


class StartFailed(Exception):
    """A child process that repeatedly ended soon after its start. The message names the child."""


@dataclass(slots=True)
class Child:
    """A process to keep running. Its output is forwarded line by line, with its name as a prefix.

    A stop request sends SIGTERM to the process alone, never to its group. After `grace_s` seconds the whole group is
    killed. If a child that is not required cannot be started, the supervisor tries again for ever.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str | os.PathLike[str] | None = None
    keep_fds: tuple[int, ...] = ()
    grace_s: float = 10.0
    is_required: bool = True
    on_start: Callable[[], None] | None = None  # Called before the first start and before each restart.
    may_start: Callable[[], bool] = lambda: True  # Asked at each check while the process does not run.

    _process: subprocess.Popen[bytes] | None = None
    _started: float = 0.0
    _next_start: float = 0.0
    _quick_ends: int = 0
    _was_healthy: bool = False
    _replace_reason: str = ""

    @property
    def pid(self) -> int | None:
        """Return the id of the process and of its group, or None if it does not run."""
        return self._process.pid if self._process else None

    def replace(self, reason: str) -> None:
        """Request a restart at the next check. Any thread may call this."""
        self._replace_reason = reason

    def check(self, now: float) -> bool:
        """Start the process if it is due. If it ended or must be replaced, kill its group and plan a new start.

        Return whether anything changed.
        """
        if self._process is None:
            return now >= self._next_start and self.may_start() and self._start(now)
        ending = self._replace_reason or self._ending()
        if not ending:
            return False
        self.end()
        is_healthy = now - self._started >= HEALTHY_AFTER_S
        self._was_healthy |= is_healthy
        self._quick_ends = 0 if is_healthy else self._quick_ends + 1
        if self.is_required and self._quick_ends >= MAX_STARTS and not self._was_healthy:
            raise StartFailed(f"{self.name} {ending}, {MAX_STARTS} times in a row")
        delay = min(MAX_DELAY_S, FIRST_DELAY_S * 2**self._quick_ends)
        self._next_start = now + delay
        logger.warning("%s %s; a replacement starts in %g s", self.name, ending, delay)
        return True

    def request_stop(self) -> None:
        if self._process:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def has_ended(self) -> bool:
        return self._process is None or bool(self._ending())

    def end(self) -> None:
        """Kill the rest of the process group, then reap the process.

        Until the process is reaped, no other process can receive its id.
        """
        if self._process is None:
            return
        group = self._process.pid
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        # Wait until all processes of a killed group are gone, at most SHUTDOWN_S seconds. A killed process holds its
        # files and locks until the kernel has removed it. Code that acts on the end of a group must wait for all of
        # its processes. An example is the last user of the embedded database.
        deadline = time.monotonic() + SHUTDOWN_S
        while time.monotonic() < deadline and _has_live_process(group):
            time.sleep(0.01)
        self._process.wait()
        self._process = None

    def _start(self, now: float) -> bool:
        if self.on_start:
            self.on_start()
        self._replace_reason = ""
        self._started = now
        self._process = subprocess.Popen(
            self.command,
            env={**os.environ, **self.environment},
            cwd=self.directory,
            pass_fds=self.keep_fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=_forward_output, args=(self.name, self._process.stdout), daemon=True).start()
        return True

    def _ending(self) -> str:
        """Return a description of how the process ended, or "" while it runs. Do not reap the process."""
        if self._process is None:
            return ""
        status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if status is None:
            return ""
        if status.si_code == os.CLD_EXITED:
            return f"ended with {status.si_status}"
        return f"was ended by {signal.Signals(status.si_status).name}"


def _has_live_process(group: int) -> bool:
    """Return whether a process of the group still runs. Ignore zombies, because they hold no files or locks."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def _forward_output(name: str, output: IO[bytes]) -> None:
    with output:
        for line in output:
            sys.stderr.write(f"{name} | {line.decode(errors='replace')}")
            sys.stderr.flush()


PeriodicTask = Callable[[], float | None]
"""A periodic task. It returns the seconds until its next call, or None to end."""


class Supervisor:
    """A supervisor that keeps its children running until a signal stops it. A second signal stops it at once.

    If the supervisor itself is killed, its children are killed and `if_killed` is run as a command in `directory`.
    """

    def __init__(
        self,
        children: Sequence[Child],
        periodic_tasks: Sequence[PeriodicTask] = (),
        before_stop: Callable[[], None] | None = None,
        if_killed: Sequence[str] = (),
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._children = list(children)
        self._periodic_tasks = list(periodic_tasks)
        self._before_stop = before_stop
        self._if_killed, self._directory = if_killed, directory
        self._signals = 0

    def run(self) -> None:
        """Run until a signal arrives, then stop all children. Raise StartFailed if a child does not start."""
        with self._count_signals(), _run_watchdog(self._if_killed, self._directory) as report_groups:
            threading.Thread(target=self._run_periodic_tasks, daemon=True).start()
            try:
                while not self._signals:
                    now = time.monotonic()
                    if any([child.check(now) for child in self._children]):
                        report_groups([child.pid for child in self._children if child.pid])
                    time.sleep(CHECK_S)
                logger.info("stopping; a second signal stops immediately")
                if self._before_stop:
                    self._before_stop()
            finally:
                self._signals = self._signals or 1
                _stop(self._children, lambda: self._signals > 1)
                report_groups(())

    @contextmanager
    def _count_signals(self) -> Iterator[None]:
        def count(_number: int, _frame: object) -> None:
            self._signals += 1

        before = {number: signal.signal(number, count) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run_periodic_tasks(self) -> None:
        due = dict.fromkeys(self._periodic_tasks, 0.0)
        while due and not self._signals:
            for task in [task for task, at in due.items() if time.monotonic() >= at]:
                wait = self._run_task(task)
                if wait is None:
                    del due[task]
                else:
                    due[task] = time.monotonic() + wait
            time.sleep(CHECK_S)

    def _run_task(self, task: PeriodicTask) -> float | None:
        try:
            return task()
        except Exception as error:  # noqa: BLE001 - no error here may end the supervision of the children
            if not self._signals:
                logger.warning("%s: %s", type(error).__name__, (str(error).splitlines() or ["no message"])[0])
            return 2.0


def _stop(children: Sequence[Child], is_hurried: Callable[[], bool]) -> None:
    """Ask all children to stop, wait for each within its grace period, and kill the rest."""
    started = time.monotonic()
    for child in children:
        child.request_stop()
    while not is_hurried() and (remaining := [child for child in children if not child.has_ended()]):
        if time.monotonic() - started > max(child.grace_s for child in remaining):
            logger.warning("%s did not stop in time", ", ".join(child.name for child in remaining))
            break
        time.sleep(CHECK_S / 2)
    for child in children:
        child.end()


@contextmanager
def keep_running(child: Child) -> Iterator[None]:
    """Keep one child running during the block. Raise StartFailed inside the block if the child cannot be started.

    Only the main thread may use this, because a signal interrupts the block.
    """
    stopped = threading.Event()
    main = threading.get_ident()
    reasons: list[StartFailed] = []

    def watch() -> None:
        try:
            while not stopped.wait(CHECK_S):
                child.check(time.monotonic())
        except StartFailed as reason:
            reasons.append(reason)
            signal.pthread_kill(main, signal.SIGUSR1)  # Interrupts a blocking call in the block.

    def give_up(_number: int, _frame: object) -> None:
        raise reasons[0]

    before = signal.signal(signal.SIGUSR1, give_up)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stopped.set()
        watcher.join()
        signal.signal(signal.SIGUSR1, before)
        _stop([child], lambda: False)


@contextmanager
def _run_watchdog(
    if_killed: Sequence[str], directory: str | os.PathLike[str] | None
) -> Iterator[Callable[[Sequence[int]], None]]:
    """Run a shell that kills the children's process groups if this process is killed.

    Yield a function that reports the current groups to the shell.
    """
    read_end, write_end = os.pipe()
    command = ["/bin/sh", "-c", WATCHDOG_SCRIPT, "watchdog", *if_killed]
    settings = ("EVALSITE_DATA_DIR", "EVALSITE_POSTGRES_BIN", "EVALSITE_SECRET_KEY")  # For a command of the site.
    environment = build_child_environment("HOME", *settings)
    shell = subprocess.Popen(command, stdin=read_end, cwd=directory, start_new_session=True, env=environment)
    os.close(read_end)

    def report_groups(groups: Sequence[int]) -> None:
        with suppress(BrokenPipeError):
            os.write(write_end, f"{' '.join(map(str, groups))}\n".encode())

    try:
        yield report_groups
    finally:
        os.close(write_end)
        shell.wait()
