"""The shipped commands run with the shipped settings. Only folders, ports, the secret and the database differ."""

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest
import yaml

from evalsite.lib.ops.postgres import Embedded
from tests.prepared_database import copy_folder
from tests.system.postgres.conftest import ROOT, open_folder
from tests.system.up.conftest import free_port, wait_until

pytestmark = pytest.mark.processes

DEPLOY = ROOT / "docs" / "deploy"
HOST = "evalsite.lab.example"
SECRET = "a-secret-of-the-tests-" + "x" * 32
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.fixture
def machine(prepared):
    """A folder in place of the machine's, with a migrated database that runs."""
    with open_folder() as folder:
        for name in ("data", "tmp", "server"):
            (folder / name).mkdir()
        embedded = Embedded(copy_folder(prepared / "postgres", folder / "server" / "postgres"))
        with embedded.running():
            yield folder, f"postgresql://evalsite@/evalsite?host={embedded.socket_dir}"


def read_unit(name, machine):
    """Return the command and the environment of a unit on this machine."""
    folder, database = machine
    (line,) = re.findall(r"^ExecStart=(.*)$", (DEPLOY / "systemd" / name).read_text(), re.MULTILINE)
    environment = dict(
        line.split("=", 1)
        for line in (DEPLOY / "evalsite.env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    own = {
        "DATABASE_URL": database,
        "EVALSITE_SECRET_KEY": SECRET,
        "EVALSITE_DATA_DIR": f"{folder}/data",
        "TMPDIR": f"{folder}/tmp",  # noqa: S108
    }
    assert own.keys() <= environment.keys()
    return list_arguments(shlex.split(line), folder), environment | own


def read_service(name, machine):
    """Return the command and the environment of a service of the compose file on this machine."""
    folder, database = machine
    values = {"EVALSITE_HOST": HOST, "EVALSITE_SECRET_KEY": SECRET}
    service = COMPOSE["services"][name]
    environment = {
        key: re.sub(r"\$\{(\w+)[^}]*\}", lambda match: values.get(match[1], ""), value)
        for key, value in service["environment"].items()
    }
    own = {"DATABASE_URL": database, "EVALSITE_DATA_DIR": f"{folder}/data"}
    return list_arguments(service["command"], folder), environment | own


def list_arguments(words, folder):
    """Return the words from the name of the command on, with this machine's port and folder of backups."""
    start = next(at for at, word in enumerate(words) if word in ("up", "drain", "backup"))
    words = [word.replace("/var/lib/evalsite-backups", f"{folder}/backups") for word in words[start:]]
    if words[0] == "up":
        words[words.index("--port") + 1] = str(free_port())
    return words


@contextmanager
def run(arguments, environment, log):
    """Run a command as a service manager does: with no other variables. Then stop it as `systemctl stop` does."""
    environment = {"PATH": os.defpath, "HOME": str(log.parent), **environment}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()


def wait_for_line(words, process, log: Path):
    """Wait until the log has these words. Fail if the process ends or a traceback comes first."""

    def is_there():
        text = log.read_text()
        assert process.poll() is None, text
        assert "Traceback" not in text
        return words in text

    wait_until(is_there)


def fetch(address, headers=None):
    """Return the status and the content of a page of the site."""
    request = urllib.request.Request(address, headers=headers or {})  # noqa: S310 - our own address
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            return response.status, response.read()
    except HTTPError as error:
        return error.code, b""


@contextmanager
def run_site(arguments, environment, log):
    """Run the site for the block, and check its pages, its health and its log. Yield its port."""
    port = arguments[arguments.index("--port") + 1]
    with run(arguments, environment, log) as process:
        wait_for_line(f"Evalsite is at https://{HOST}/", process, log)
        for address in (f"http://127.0.0.1:{port}/healthz", f"http://localhost:{port}/healthz?workers=1"):
            assert fetch(address)[0] == 200
        as_proxy = {"Host": HOST, "X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.1"}
        status, page = fetch(f"http://127.0.0.1:{port}/accounts/login/", as_proxy)
        assert (status, b"<form" in page) == (200, True)
        assert fetch(f"http://127.0.0.1:{port}/accounts/login/")[0] == 400
        wait_for_line("You may need to add '127.0.0.1' to ALLOWED_HOSTS", process, log)
        yield port


@pytest.mark.parametrize("database", ["of its own", "embedded"])
def test_the_unit_of_the_site_announces_itself_and_logs_no_traceback(machine, database):
    arguments, environment = read_unit("evalsite.service", machine)
    if database == "embedded":
        del environment["DATABASE_URL"]
    with run_site(arguments, environment, machine[0] / "up.log"):
        pass  # The checks are those of every site.


def test_the_units_of_a_worker_and_of_the_backup_run(machine):
    folder, _ = machine
    arguments, environment = read_unit("evalsite-drain.service", machine)
    with run(arguments, environment, folder / "drain.log") as process:
        wait_for_line("draining as ", process, folder / "drain.log")
    arguments, environment = read_unit("evalsite-backup.service", machine)
    subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment, check=True)
    assert len(list((folder / "backups").glob("*.dump"))) == 1


def test_the_services_of_the_compose_file_announce_themselves_and_are_healthy(machine):
    folder, _ = machine
    arguments, environment = read_service("web", machine)
    healthcheck = COMPOSE["services"]["web"]["healthcheck"]["test"]
    assert healthcheck[:2] == ["CMD", "python"]
    with run_site(arguments, environment, folder / "up.log") as port:
        check = [word.replace(":8000/", f":{port}/") for word in healthcheck[2:]]
        subprocess.run([sys.executable, *check], check=True, timeout=60)
        arguments, environment = read_service("worker", machine)
        with run(arguments, environment, folder / "drain.log") as process:
            wait_for_line("draining as ", process, folder / "drain.log")
