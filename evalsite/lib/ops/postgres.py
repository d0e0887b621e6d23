"""The embedded PostgreSQL: one private server for each data folder, shared by all processes of one site.

Processes coordinate only through three locks in the data folder (`file_lock`).

- `gate.lock`, exclusive: only one process at a time starts, stops, joins or leaves the server.
- `users.lock`, shared: each process that uses the server holds it. The process that can lock it exclusively is the last
  user.
- `server.lock`, exclusive: the server and all its children inherit it. It is free only when none of them is left.

`pg_isready` tests whether the server answers. Process ids are never tested: `postmaster.pid` may name an unrelated
process.

The server listens only on a socket in a folder of mode 0700. It identifies clients through the kernel (`peer`
authentication) and accepts only the site's own account and root. If root runs the site, the server runs under another
account. Other programs may share that account.
"""

import hashlib
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from evalsite.lib.ops.data_folder import explain_unusable, make_data_folder
from evalsite.lib.ops.failed_commands import explain_disk_error
from evalsite.lib.ops.file_lock import hold_lock, lock_file, open_lock_file, release_lock
from evalsite.lib.ops.postgres_programs import PostgresError, Programs, get_user_name

NAME = "evalsite"  # the name of the database and of its only role
PORT = "5432"  # only part of the socket's file name: the server does not listen on TCP
SETTINGS = {
    "listen_addresses": "",
    "port": PORT,
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "synchronous_commit": "on",
}
MAX_SOCKET_PATH = 103  # bytes; macOS allows 104 including the final zero byte, Linux 108
MAX_LOG_BYTES = 5_000_000
ANSWERING, REFUSING = 0, 1  # exit codes of pg_isready; REFUSING while the server starts, recovers or stops
MAX_SILENCE_S = 10.0  # without any response; a live server opens its socket much earlier
MAX_WAIT_S = 300  # for a recovery after a crash, or for a shutdown


class Embedded:
    """The embedded server of one data folder. The constructor touches no file; the path may contain any character."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(data_dir).resolve()
        self.socket_dir = _choose_socket_dir(self.data_dir)
        self._cluster = self.data_dir / "data"
        self._programs = Programs(self.data_dir, self._cluster)
        self.log = self._programs.log
        self._hba_file = self.data_dir / "pg_hba.conf"
        self._ident_file = self.data_dir / "pg_ident.conf"

    def connection(self) -> dict[str, str]:
        """Return the connection parameters for libpq. They include the port, so that PGPORT has no effect."""
        return {"host": str(self.socket_dir), "port": PORT, "user": NAME, "dbname": NAME}

    def start(self) -> None:
        """Create, recover or start the server as needed, and return when it accepts connections.

        Raise PostgresError on failure.
        """
        with self._lock_gate():
            self._ensure_running()

    def stop(self) -> None:
        """Disconnect all clients and stop the server, and remove its socket.

        Raise PostgresError on failure.
        """
        with self._lock_gate():
            self._shut_down()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep the server running during the block. The last process that leaves such a block stops the server."""
        owner_pid = os.getpid()
        users = self._open("users.lock")
        try:
            with self._lock_gate():
                lock_file(users, shared=True)
                self._ensure_running()
            yield
        finally:
            # A forked child may unwind its parent's stack. It shares the parent's lock and must not release it.
            if os.getpid() == owner_pid:
                self._leave(users)

    def _leave(self, users: int) -> None:
        with self._lock_gate():
            try:
                if _try_lock(users):
                    self._shut_down()
            finally:
                release_lock(users)
                os.close(users)

    @contextmanager
    def _lock_gate(self) -> Iterator[None]:
        gate = self._open("gate.lock")
        try:
            with hold_lock(gate):
                yield
        except OSError as error:
            remedy = explain_disk_error(error) or ""
            raise PostgresError(
                f"The embedded PostgreSQL in {self.data_dir} failed: {error}. {remedy}".rstrip()
            ) from error

    def _open(self, name: str) -> int:
        try:
            make_data_folder(self.data_dir)
            return open_lock_file(self.data_dir / name)
        except OSError as error:
            raise PostgresError(explain_unusable(self.data_dir, error)) from error

    # The methods below require the gate lock.

    def _ensure_running(self) -> None:
        server_lock = self._wait_until_settled()
        if server_lock is None:
            return
        try:
            self._programs.require_access(self.data_dir, "set EVALSITE_DATA_DIR to a folder such as /var/lib/evalsite")
            if not self._cluster.exists():
                self._create()
            self._delete_stale_files()
            self._make_socket_dir()
            self._write_access_rules()
            if self.log.exists() and self.log.stat().st_size > MAX_LOG_BYTES:
                self.log.replace(self.log.with_suffix(".log.old"))
            settings = {**SETTINGS, **self._path_settings()}
            options = " ".join(shlex.quote(f"--{name}={value}") for name, value in settings.items())
            self._programs.check(
                "pg_ctl", "start", "--silent", f"--timeout={MAX_WAIT_S}", f"--options={options}", keep=server_lock
            )
        finally:
            os.close(server_lock)  # no LOCK_UN: the server has inherited this lock and must keep it

    def _wait_until_settled(self) -> int | None:
        """Wait while the server starts or stops.

        Return None once the server answers. Return the descriptor of its lock once none of its processes is left. Raise
        PostgresError if neither happens in time.
        """
        server_lock = self._open("server.lock")
        started = answered = time.monotonic()
        while not _try_lock(server_lock):
            state = self._pg_isready()
            now = time.monotonic()
            if state == ANSWERING:
                os.close(server_lock)
                return None
            answered = now if state == REFUSING else answered
            if now - answered > MAX_SILENCE_S or now - started > MAX_WAIT_S:
                os.close(server_lock)
                raise PostgresError(self._describe_unreachable())
            time.sleep(0.02)
        return server_lock

    def _pg_isready(self) -> int:
        options = ("--quiet", "--timeout=3", f"--host={self.socket_dir}", f"--port={PORT}")
        probe = self._programs.run("pg_isready", *options, f"--username={NAME}", f"--dbname={NAME}", as_caller=True)
        return probe.returncode

    def _describe_unreachable(self) -> str:
        with suppress(OSError, IndexError):
            pid_file = (self._cluster / "postmaster.pid").read_text(errors="replace").splitlines()
            return (
                f"A server of {self.data_dir} runs but does not answer in {self.socket_dir}: process {pid_file[0]} was "
                f"started with its socket in {pid_file[4]}. Use the same user and TMPDIR, or end it with SIGINT."
            )
        problem = f"A server of {self.data_dir} runs but does not answer in {self.socket_dir}."
        return f"{problem} {self._programs.read_log_end()}"

    def _path_settings(self) -> dict[str, str]:
        return {
            "unix_socket_directories": str(self.socket_dir),
            "hba_file": str(self._hba_file),
            "ident_file": str(self._ident_file),
        }

    def _write_access_rules(self) -> None:
        """Write the rules for client authentication.

        The files are outside the cluster, because other programs may share the account that owns the cluster.
        """
        names = sorted({get_user_name(uid) for uid in (0, os.geteuid(), self.data_dir.stat().st_uid)})
        self._write_rules(self._hba_file, [f"local all {NAME} peer map={NAME}"])
        self._write_rules(self._ident_file, [f'{NAME} "{name}" {NAME}' for name in names])

    def _write_rules(self, path: Path, lines: list[str]) -> None:
        draft = path.with_name(f"{path.name}.new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write("\n".join(["# Written at each start of the server.", *lines, ""]))
            os.fchmod(
                file.fileno(), 0o644 if self._programs.identity else 0o600
            )  # Root's server runs as another account.
        draft.replace(path)

    def _shut_down(self) -> None:
        server_lock = self._wait_until_settled()
        if server_lock is None:
            self._programs.check("pg_ctl", "stop", "--silent", "--mode=fast", f"--timeout={MAX_WAIT_S}")
            server_lock = self._wait_until_settled()
        if server_lock is not None:
            self._delete_stale_files()
            with suppress(FileNotFoundError):
                self.socket_dir.rmdir()
            os.close(server_lock)

    def _delete_stale_files(self) -> None:
        """Delete the files of a killed server. The process id in them may now belong to an unrelated process."""
        socket = self.socket_dir / f".s.PGSQL.{PORT}"
        for path in (self._cluster / "postmaster.pid", socket, socket.with_name(f"{socket.name}.lock")):
            path.unlink(missing_ok=True)

    def _create(self) -> None:
        """Create the cluster and its database under a temporary name, then rename it.

        If this process is killed, only temporary folders remain. The next attempt deletes them.
        """
        for leftover in self.data_dir.glob("*.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        new_cluster = Path(tempfile.mkdtemp(prefix="data.new-", dir=self.data_dir))
        self._programs.change_owner(new_cluster)
        # `_write_access_rules` sets the real rules for authentication.
        major = self._programs.read_major_version()
        # The built-in locale provider sorts the same on every machine, independent of the C library.
        locale_options = ("--locale-provider=builtin", "--locale=C.UTF-8") if major >= 17 else ("--locale=C.UTF-8",)
        options = ("--auth-local=reject", "--auth-host=reject", *locale_options)
        self._programs.check(
            "initdb",
            f"--username={NAME}",
            *options,
            "--encoding=UTF8",
            cluster=new_cluster,
        )
        create = f"CREATE DATABASE {NAME}\n".encode()
        self._programs.check(
            "postgres", "--single", "-c", "exit_on_error=on", "postgres", cluster=new_cluster, stdin=create
        )
        new_cluster.rename(self._cluster)
        # Flush the folder to disk, so that a rename in it survives a power failure.
        descriptor = os.open(self.data_dir, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _make_socket_dir(self) -> None:
        self._programs.require_access(self.socket_dir.parent, "set TMPDIR to one that is, such as /tmp")
        with suppress(FileExistsError):
            self.socket_dir.mkdir(mode=0o700)
        status = self.socket_dir.lstat()
        # Any account may create this name in a temporary folder. Accept only a real folder that we own.
        if self.socket_dir.is_symlink() or status.st_uid not in {os.geteuid(), self._programs.identity.get("user")}:
            raise PostgresError(f"{self.socket_dir} belongs to someone else. Remove it, or set TMPDIR.")
        self.socket_dir.chmod(0o700)
        self._programs.change_owner(self.socket_dir)


def _choose_socket_dir(data_dir: Path) -> Path:
    name = f"evalsite-{os.geteuid()}-{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]}"
    path = Path(tempfile.gettempdir()).resolve() / name
    too_long = len(os.fsencode(path / f".s.PGSQL.{PORT}")) > MAX_SOCKET_PATH
    # libpq and the server treat a comma as a separator of folders, and PostgreSQL removes double quotes.
    return Path("/tmp") / name if too_long or set(str(path)) & set(',"') else path  # noqa: S108


def _try_lock(descriptor: int) -> bool:
    """Take the exclusive lock if it is free, without waiting. Return whether the lock was taken."""
    try:
        lock_file(descriptor, waits=False)
    except BlockingIOError:
        return False
    return True
