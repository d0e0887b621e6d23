"""Several machines in one: each a network namespace with a cable to one switch, which can be pulled out.

Unix sockets are files and cross namespaces, so the test itself reaches the database however the cables are.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from evalsite.lib.ops.postgres import PORT
from tests.system.postgres.conftest import wait_for

ROOT = Path(__file__).resolve().parents[3]
IP = shutil.which("ip") or "ip"
NET = "10.213.77"  # Within these namespaces alone.


def missing():
    """What this machine lacks for it, or nothing."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    lacking = [name for name in ("ip", "unshare", "setpriv") if not shutil.which(name)]
    if lacking:
        return f"there is no {', '.join(lacking)}"
    probe = f"probe-{os.getpid()}"
    if subprocess.run([IP, "netns", "add", probe], capture_output=True).returncode:
        return "the kernel makes no network namespaces here"
    try:
        made = subprocess.run([IP, "-n", probe, "link", "add", "probe", "type", "bridge"], capture_output=True)
        return "the kernel makes no bridges here" if made.returncode else ""
    finally:
        ip("netns", "del", probe)


def ip(*arguments):
    subprocess.run([IP, *arguments], check=True, capture_output=True)


@dataclass(frozen=True)
class Machine:
    """`name` is its host name and its namespace's, `address` where the others reach it."""

    name: str
    address: str

    @property
    def shell(self):
        """What stands before a command that is to run there."""
        renamed = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', self.name]
        return [IP, "netns", "exec", self.name, *renamed]

    def pull_the_cable(self):
        ip("-n", self.name, "link", "set", "eth0", "down")

    def plug_it_in(self):
        ip("-n", self.name, "link", "set", "eth0", "up")


@contextmanager
def machines(*names):
    """So many machines on one switch; gone after the block."""
    prefix = f"ev{os.getpid()}"
    switch = f"{prefix}-switch"
    with ExitStack() as stack:
        _namespace(stack, switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        made = [Machine(f"{prefix}-{name}", f"{NET}.{number}") for number, name in enumerate(names, start=1)]
        for number, machine in enumerate(made):
            _namespace(stack, machine.name)
            ip("-n", switch, "link", "add", f"port{number}", "type", "veth", "peer", "eth0", "netns", machine.name)
            ip("-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
            ip("-n", machine.name, "link", "set", "lo", "up")
            machine.plug_it_in()
        yield made


def _namespace(stack, name):
    ip("netns", "add", name)
    stack.callback(ip, "netns", "del", name)


@contextmanager
def database_on(machine, embedded):
    """The cluster of an embedded server that is stopped, served to the network from that machine."""
    cluster = embedded.data_dir / "data"
    embedded._make_socket_dir()
    embedded._write_access_rules()
    with embedded._hba_file.open("a") as rules:
        rules.write(f"host all all {NET}.0/24 trust\n")
    settings = {"listen_addresses": machine.address, "port": PORT, **embedded._path_settings()}
    options = [f"--{name}={value}" for name, value in settings.items()]
    owner = cluster.stat()
    as_owner = ["setpriv", f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups"]
    with embedded.log.open("ab") as log:
        server = subprocess.Popen(
            [
                IP,
                "netns",
                "exec",
                machine.name,
                *as_owner,
                embedded._programs.folder / "postgres",
                "-D",
                cluster,
                *options,
            ],
            cwd="/",
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: embedded._pg_isready() == 0)
        yield f"postgresql://evalsite@{machine.address}:{PORT}/evalsite"
    finally:
        server.kill()
        server.wait()


@contextmanager
def provider_on(machine, config):
    """The address of a simulated provider there, and a function that says what it has counted."""
    from runs_app.simulator.options import build_arguments

    process = subprocess.Popen(
        [*machine.shell, sys.executable, "-m", "runs_app.simulator", *build_arguments(config)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = process.stdout.readline().partition("listening on ")[2].strip()
        assert url, "the provider did not start"
        yield url, lambda: _counters(machine, url)
    finally:
        process.terminate()
        process.communicate()


def _counters(machine, url):
    code = f"import urllib.request as u; print(u.urlopen('{url.removesuffix('/v1')}/counters').read().decode())"
    said = subprocess.run([*machine.shell, sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(said.stdout)
