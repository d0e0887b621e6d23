"""Simulated machines: network namespaces, each connected to one switch by a link that can be cut.

Unix sockets are files and cross namespaces, so the test itself reaches the database even if all links are cut.
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
NET = "10.213.77"  # Exists only within these namespaces.


def find_missing_support():
    """Return why this machine cannot simulate a network, or an empty string."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    missing_programs = [name for name in ("ip", "unshare", "setpriv") if not shutil.which(name)]
    if missing_programs:
        return f"there is no {', '.join(missing_programs)}"
    probe = f"probe-{os.getpid()}"
    if subprocess.run([IP, "netns", "add", probe], capture_output=True).returncode:
        return "the kernel makes no network namespaces here"
    try:
        result = subprocess.run([IP, "-n", probe, "link", "add", "probe", "type", "bridge"], capture_output=True)
        return "the kernel makes no bridges here" if result.returncode else ""
    finally:
        ip("netns", "del", probe)


def ip(*arguments):
    subprocess.run([IP, *arguments], check=True, capture_output=True)


@dataclass(frozen=True)
class Machine:
    """A network namespace. `name` is its name and its host name; the other machines reach it at `address`."""

    name: str
    address: str

    @property
    def shell(self):
        """Return the prefix of a command that runs on this machine."""
        with_host_name = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', self.name]
        return [IP, "netns", "exec", self.name, *with_host_name]

    def cut_network(self):
        ip("-n", self.name, "link", "set", "eth0", "down")

    def restore_network(self):
        ip("-n", self.name, "link", "set", "eth0", "up")


@contextmanager
def create_machines(*names):
    """Create machines connected to one switch. Remove them after the block."""
    prefix = f"ev{os.getpid()}"
    switch = f"{prefix}-switch"
    with ExitStack() as stack:
        _add_namespace(stack, switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        created = [Machine(f"{prefix}-{name}", f"{NET}.{number}") for number, name in enumerate(names, start=1)]
        for number, machine in enumerate(created):
            _add_namespace(stack, machine.name)
            ip("-n", switch, "link", "add", f"port{number}", "type", "veth", "peer", "eth0", "netns", machine.name)
            ip("-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "eth0")
            ip("-n", machine.name, "link", "set", "lo", "up")
            machine.restore_network()
        yield created


def _add_namespace(stack, name):
    ip("netns", "add", name)
    stack.callback(ip, "netns", "del", name)


@contextmanager
def run_database_on(machine, embedded):
    """Serve the cluster of a stopped embedded server to the network from this machine. Yield its URL."""
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
def run_provider_on(machine, config):
    """Run a simulated provider on this machine. Yield its URL and a function that returns its counters."""
    pass

    process = subprocess.Popen(
        [*machine.shell, sys.executable, "-m", "runs_app.simulator", *config.build_arguments()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = process.stdout.readline().partition("listening on ")[2].strip()
        assert url, "the provider did not start"
        yield url, lambda: _read_counters(machine, url)
    finally:
        process.terminate()
        process.communicate()


def _read_counters(machine, url):
    code = f"import urllib.request as u; print(u.urlopen('{url.removesuffix('/v1')}/counters').read().decode())"
    process = subprocess.run([*machine.shell, sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(process.stdout)
